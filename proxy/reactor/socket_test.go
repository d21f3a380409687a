package reactor

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/syncbuffer"
	"github.com/remora-proxy/remora/proxy/certs"
	"github.com/remora-proxy/remora/proxy/loop"
)

// leaver returns streams that detach their connection in OnOpen, and send it to left.
func leaver(t *testing.T, left chan<- loop.Socket) func() loop.Receiver {
	return func() loop.Receiver {
		return &stream{open: func(c loop.Conn) {
			sock, err := c.Detach()
			if err != nil {
				t.Errorf("Detach: %v", err)
				return
			}
			_ = sock.SetDeadline(time.Now().Add(waitLimit))
			left <- sock
		}}
	}
}

// detachedTLS returns a detached TLS connection and its peer.
func detachedTLS(t *testing.T, e *Reactor) (sock loop.Socket, peer *tls.Conn) {
	t.Helper()
	own := NewIdentity(t)
	left := make(chan loop.Socket, 1)
	addr := listen(t, e, ListenOptions{TLS: own.Server}, leaver(t, left))
	peer = tls.Client(dial(t, addr), own.Client())
	if err := peer.Handshake(); err != nil {
		t.Fatal(err)
	}
	sock = recv(t, left, "the connection to leave its loop")
	t.Cleanup(func() { sock.Close() })
	return sock, peer
}

// TestSocketEarlyData: input that arrived in one piece with the end of the handshake goes
// with a detached connection, and later input follows it.
func TestSocketEarlyData(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, Options{})
	left := make(chan loop.Socket, 1)
	addr := listen(t, e, ListenOptions{TLS: own.Server}, leaver(t, left))
	for range 20 {
		held := &delayedWrites{TCPConn: dial(t, addr)}
		peer := tls.Client(held, own.Client())
		if err := peer.Handshake(); err != nil { // its last flight is held back
			t.Fatal(err)
		}
		early := strings.Repeat("early", 10<<10) // several records
		must.Write(t, peer, early)
		held.release(t)
		sock := recv(t, left, "the connection to leave its loop")
		must.Write(t, peer, " and late")
		if err := peer.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(sock); string(got) != early+" and late" || err != nil {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if err := sock.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestSocketHalfClose: after CloseWrite the peer reads an end of file and can still send.
// The conformance suite tests the opposite direction.
func TestSocketHalfClose(t *testing.T) {
	sock, peer := detachedTLS(t, start(t, Options{}))
	must.Write(t, sock, "last words")
	if err := sock.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(peer); string(got) != "last words" || err != nil {
		t.Errorf("the peer read %q, %v", got, err)
	}
	sent := strings.Repeat("on and on ", 100<<10)
	go func() {
		_, _ = io.WriteString(peer, sent)
		peer.Close()
	}()
	if got, err := io.ReadAll(sock); string(got) != sent || err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	// Package tls sets a deadline and leaves it. A slower peer would lose the end of file.
	raw := sock.(interface{ NetConn() net.Conn }).NetConn()
	if _, err := raw.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("Write below a Socket whose sending side is shut: %v", err)
	}
}

// TestSocketDeadline: a read that reaches its deadline, even in the middle of a record,
// loses no input.
func TestSocketDeadline(t *testing.T) {
	e := start(t, Options{})
	own := NewIdentity(t)
	left := make(chan loop.Socket, 1)
	addr := listen(t, e, ListenOptions{TLS: own.Server}, leaver(t, left))
	held := &delayedWrites{TCPConn: dial(t, addr), open: true}
	peer := tls.Client(held, own.Client())
	if err := peer.Handshake(); err != nil {
		t.Fatal(err)
	}
	sock := recv(t, left, "the connection to leave its loop")
	defer sock.Close()
	held.open = false
	must.Write(t, peer, "record")
	must.Write(t, held.TCPConn, held.held[:7])
	held.held = held.held[7:]
	for range 2 {
		_ = sock.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		if _, err := sock.Read(make([]byte, 10)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("Read past its deadline: %v", err)
		}
	}
	_ = sock.SetReadDeadline(time.Now().Add(waitLimit))
	held.release(t)
	got := make([]byte, 6)
	if _, err := io.ReadFull(sock, got); string(got) != "record" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	_ = sock.SetWriteDeadline(time.Now().Add(-time.Second))
	if _, err := sock.Write(got); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Write past its deadline: %v", err)
	}
}

// TestSocketCloseOfSilent: Close ends a connection with TLS after a moment, although its peer has stopped to read.
func TestSocketCloseOfSilent(t *testing.T) {
	e := start(t, Options{})
	sock, _ := detachedTLS(t, e)
	raw := sock.(interface{ NetConn() net.Conn }).NetConn()
	for n, large := 1, make([]byte, 1<<20); n > 0; { // until the kernel takes no more
		var err error
		_ = raw.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		if n, err = raw.Write(large); n < len(large) && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("Write: %v", err)
		}
	}
	_ = raw.SetDeadline(time.Time{})
	closed := make(chan struct{})
	go func() { defer close(closed); _ = sock.Close() }()
	recv(t, closed, "Close")
	if st := e.Stats(); st.Inbound != 0 || st.Open != 0 {
		t.Errorf("%+v", st)
	}
}

// TestSocketReset: Reset sends a reset to the peer and releases the reservation.
func TestSocketReset(t *testing.T) {
	t.Run("plain", func(t *testing.T) {
		e := start(t, Options{})
		left := make(chan loop.Socket, 1)
		peer := dial(t, listen(t, e, ListenOptions{}, leaver(t, left)))
		resets(t, e, recv(t, left, "the connection to leave its loop"), peer)
	})
	t.Run("TLS", func(t *testing.T) {
		e := start(t, Options{})
		sock, peer := detachedTLS(t, e)
		resets(t, e, sock, peer)
	})
}

func resets(t *testing.T, e *Reactor, sock loop.Socket, peer net.Conn) {
	t.Helper()
	if st := e.Stats(); st.Inbound != 1 || st.Open != 1 || st.Detached != 1 {
		t.Errorf("%+v", st)
	}
	sock.Reset()
	if err := sock.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Close after it: %v", err)
	}
	if _, err := io.ReadAll(peer); !isReset(err) {
		t.Errorf("the peer read to %v, want a reset", err)
	}
	if st := e.Stats(); st.Inbound != 0 || st.Open != 0 {
		t.Errorf("%+v", st)
	}
}

// TestSocketDialer: DialTLS selects TLS by service, and each result of a dial is counted.
func TestSocketDialer(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, Options{DialTLS: func(service, _, _ string) func() *tls.Config {
		if service == "secured" {
			return own.Client
		}
		return nil
	}})
	for service, addr := range map[string]string{
		"secured": listen(t, e, ListenOptions{TLS: own.Server}, echo),
		"plain":   listen(t, e, ListenOptions{}, echo),
	} {
		sock, err := e.SocketDialer().Dial(t.Context(), addr, service, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		if sock.Secure() != (service == "secured") {
			t.Errorf("%s: Secure is %t", service, sock.Secure())
		}
		nc := sock.(net.Conn)
		if nc.RemoteAddr().String() != addr || nc.LocalAddr() == nil {
			t.Errorf("%s: from %v to %v", service, nc.LocalAddr(), nc.RemoteAddr())
		}
		_ = sock.SetDeadline(time.Now().Add(waitLimit))
		if got := ask(t, nc, "hello"); got != "hello" {
			t.Errorf("%s: %q", service, got)
		}
		if err := sock.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := e.SocketDialer().Dial(t.Context(), refusingAddr(t), "plain", "", nil); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("without a listener: %v", err)
	}
	if st := e.Stats(); st.Dialled != 2 || st.DialErrors != 1 || st.Handshakes != 2 {
		t.Errorf("%+v", st)
	}
	eventually(t, func() error {
		if st := e.Stats(); st.Open != 0 {
			return errors.New("connections count as open")
		}
		return nil
	})
}

// TestSocketDialerRefuses: a server with another certificate and a silent server fail the
// dial, and the log names the cause.
func TestSocketDialerRefuses(t *testing.T) {
	own, other := NewIdentity(t), NewIdentity(t)
	var log syncbuffer.Buffer
	e := start(t, withTLS(Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, own))
	_, err := e.SocketDialer().Dial(t.Context(), listen(t, e, ListenOptions{TLS: other.Server}, echo), "service", "", nil)
	var refused *certs.VerifyError
	if !errors.As(err, &refused) || refused.Code != certs.CodeUnknownCA {
		t.Errorf("another authority: %v", err)
	}
	silent := listen(t, e, ListenOptions{}, func() loop.Receiver { return &stream{} })
	dials := int64(1)
	// A busy machine may take all the time for the connection itself.
	for timeout := 50 * time.Millisecond; e.Stats().TLSFailures[CodeTimeout] == 0 && timeout < waitLimit; timeout *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		if _, err := e.SocketDialer().Dial(ctx, silent, "service", "", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a silent server: %v", err)
		}
		cancel()
		dials++
	}
	for _, code := range []string{certs.CodeUnknownCA, CodeTimeout} {
		if n := e.Stats().TLSFailures[code]; n != 1 || !strings.Contains(log.String(), "code="+code) {
			t.Errorf("%s was counted %d times; log: %s", code, n, log.String())
		}
	}
	if n := e.Stats().DialErrors; n != dials {
		t.Errorf("%d failed dials, want %d", n, dials)
	}
}

// TestSocketDialerStop: Stop ends a dial during its handshake.
func TestSocketDialerStop(t *testing.T) {
	ln := must.Listen(t)
	e := start(t, withTLS(Options{}, NewIdentity(t)))
	ended := make(chan error, 1)
	go func() {
		_, err := e.SocketDialer().Dial(t.Context(), ln.Addr().String(), "service", "", nil)
		ended <- err
	}()
	nc, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := recv(t, ended, "the dial to end"); !errors.Is(err, ErrStopped) {
		t.Errorf("%v, want ErrStopped", err)
	}
}

// TestSocketDialerOfClosed: an endpoint that sends its bytes and closes at once is no failure, and its bytes are read.
func TestSocketDialerOfClosed(t *testing.T) {
	e := start(t, Options{})
	addr := unixAddrs(t)[0]
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: strings.TrimPrefix(addr, "unix:")}), unix.Listen(fd, 1)); err != nil {
		t.Fatal(err)
	}
	const rounds = 200
	served := make(chan error, 1)
	go func() { // a thread of its own, so that most connections are closed when the dial goes on
		var failed error
		for n := 0; n < rounds && failed == nil; n++ {
			var nfd int
			if nfd, _, failed = unix.Accept(fd); failed == nil {
				_, failed = unix.Write(nfd, []byte("hi"))
				_ = unix.Close(nfd)
			}
		}
		served <- failed
	}()
	defer func() {
		_ = unix.Shutdown(fd, unix.SHUT_RDWR) // ends accept
		if err := recv(t, served, "the endpoint"); err != nil {
			t.Error(err)
		}
	}()
	for range rounds {
		sock, err := e.SocketDialer().Dial(t.Context(), addr, "", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = sock.SetDeadline(time.Now().Add(waitLimit))
		if got, err := io.ReadAll(sock); string(got) != "hi" || err != nil {
			t.Errorf("read %q, %v", got, err)
		}
		_ = sock.Close()
	}
}

// TestSocketDialerFirstFails: a dial whose first bytes the endpoint does not take fails, and leaves nothing.
func TestSocketDialerFirstFails(t *testing.T) {
	e := start(t, Options{})
	ln := must.Listen(t)
	go func() {
		if nc, err := ln.Accept(); err == nil {
			_, _ = nc.Read(make([]byte, 1))
			nc.Close() // with unread input: a reset
		}
	}()
	first := make([]byte, 32<<20) // more than the kernel takes
	if sock, err := e.SocketDialer().Dial(t.Context(), ln.Addr().String(), "", "", first); sock != nil || err == nil {
		t.Errorf("%v, %v", sock, err)
	}
	if s := e.Stats(); s.DialErrors != 1 || s.Dialled != 0 || s.Open != 0 {
		t.Errorf("%+v", s)
	}
}
