package reactor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/syncbuffer"
	"github.com/remora-proxy/remora/proxy/certs"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/hello"
)

// TestTLSCodes: the code of each TLS failure, also within another error.
func TestTLSCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&certs.VerifyError{Code: certs.CodeExpired, Err: io.EOF}, certs.CodeExpired},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, CodePlaintext},
		{hello.ErrNotTLS, CodePlaintext},
		{errALPN, CodeProtocol},
		{errSilent, CodeSilent},
		{errBusy, CodeBusy},
		{os.ErrDeadlineExceeded, CodeTimeout},
		{context.DeadlineExceeded, CodeTimeout},
		{&net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}, CodeRefused},
		{&net.OpError{Op: "read", Err: io.EOF}, CodeFailed},
		{errors.New("tls: client didn't provide a certificate"), certs.CodeNoCertificate},
		{errors.New("tls: client requested unsupported application protocols ([h3])"), CodeProtocol},
		{errors.New("tls: client offered only unsupported versions: [301]"), CodeVersion},
		{errors.New("tls: server selected unsupported protocol version 301"), CodeVersion},
		{errHelloCut, CodeFailed},
		{io.EOF, CodeFailed},
	} {
		if got := tlsCode(fmt.Errorf("it failed: %w", c.err)); got != c.want {
			t.Errorf("%v: %s, want %s", c.err, got, c.want)
		}
	}
}

// TestTLSFailuresAreLogged: one failure a second of each code is logged, with the number of failures that were left out before it.
func TestTLSFailuresAreLogged(t *testing.T) { synctest.Test(t, testTLSFailuresAreLogged) }

func testTLSFailuresAreLogged(t *testing.T) {
	var log syncbuffer.Buffer
	o := tlsOutcomes{log: slog.New(slog.NewTextHandler(&log, nil))}
	for range 3 {
		o.fail("a peer", errBusy)
	}
	o.fail("another", errSilent)
	for range 2 {
		time.Sleep(logPause)
		o.fail("a later peer", errBusy)
	}
	var got []string
	for line := range strings.Lines(log.String()) {
		_, code, _ := strings.Cut(line, "code=")
		_, omitted, _ := strings.Cut(strings.TrimSpace(line), "omitted=")
		got = append(got, strings.Fields(code)[0]+" "+omitted)
	}
	if want := "tls_busy 0, tls_silent 0, tls_busy 2, tls_busy 0"; strings.Join(got, ", ") != want {
		t.Errorf("logged %q, want %s", got, want)
	}
	succeeded, resumed, failures := o.snapshot()
	if failures[CodeBusy] != 5 || failures[CodeSilent] != 1 || len(failures) != 2 || succeeded+resumed != 0 {
		t.Errorf("%d and %d handshakes, failures %v", succeeded, resumed, failures)
	}
}

// TestFailDial: a failure after the reactor's stop, or after the caller has given the dial up, is none of the peer.
func TestFailDial(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for _, c := range []struct {
		stop      context.Context
		err, want error
		counted   int64
	}{
		{t.Context(), io.EOF, io.EOF, 1},
		{t.Context(), context.Canceled, context.Canceled, 0},
		{stopped, io.EOF, ErrStopped, 0},
	} {
		o := tlsOutcomes{log: slog.New(slog.DiscardHandler)}
		got := o.failDial(c.stop, "a peer", c.err)
		if _, _, failures := o.snapshot(); got != c.want || failures[CodeFailed] != c.counted {
			t.Errorf("%v: %v, want %v; counted %v", c.err, got, c.want, failures)
		}
	}
}

// TestSocketDialerCancelled: a dial whose caller gives it up is no failure of the endpoint, and leaves nothing.
func TestSocketDialerCancelled(t *testing.T) {
	e := start(t, withTLS(Options{}, NewIdentity(t)))
	ctx, cancel := context.WithCancel(t.Context())
	silent := listen(t, e, ListenOptions{}, func() loop.Receiver { return &stream{data: func([]byte) { cancel() }} })
	if _, err := e.SocketDialer().Dial(ctx, silent, "service", "", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if st := e.Stats(); st.DialErrors != 0 || st.Dialled != 0 || len(st.TLSFailures) > 0 {
		t.Errorf("%+v", st)
	}
	eventually(t, func() error {
		if st := e.Stats(); st.Open != 0 || e.connections.dialled.Load() != 0 {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
}

// TestSocketDialerFirst: what is sent first comes before anything else, in plain text.
func TestSocketDialerFirst(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, Options{DialTLS: func(key, _, _ string) func() *tls.Config {
		if key == "secured" {
			return own.Client
		}
		return nil
	}})
	const enough = len("firstsecond")
	got := make(chan string, 1)
	addr := listen(t, e, ListenOptions{}, func() loop.Receiver {
		var conn loop.Conn
		text := ""
		return &stream{open: func(c loop.Conn) { conn = c }, data: func(b []byte) {
			if text += string(b); len(text) >= enough {
				got <- text
				conn.Close()
			}
		}}
	})
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	for _, key := range []string{"plain", "secured"} {
		var dialling sync.WaitGroup
		dialling.Go(func() {
			if sock, err := e.SocketDialer().Dial(ctx, addr, key, "", []byte("first")); err == nil {
				_, _ = sock.Write([]byte("second"))
				_ = sock.SetReadDeadline(time.Now().Add(waitLimit))
				_, _ = sock.Read(make([]byte, 1))
				sock.Close()
			}
		})
		text := recv(t, got, "the first bytes")
		dialling.Wait()
		want := "firstsecond"
		if key == "secured" {
			want = "first\x16\x03\x01"
		}
		if !strings.HasPrefix(text, want) {
			t.Errorf("%s: got %q", key, text)
		}
	}
	ln := must.Listen(t)
	sock, err := e.SocketDialer().Dial(ctx, ln.Addr().String(), "plain", "", []byte("1"))
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	nc, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(waitLimit))
	if got := must.Read(t, nc, 1); string(got) != "1" {
		t.Errorf("the first byte is %q", got)
	}
}

// TestTLSGarbage: a peer that breaks TLS after its handshake loses its connection, and is counted.
func TestTLSGarbage(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, Options{})
	ended := make(chan error, 1)
	raw := dial(t, listen(t, e, ListenOptions{TLS: own.Server}, func() loop.Receiver {
		return &stream{close: func(err error) { ended <- err }}
	}))
	if err := tls.Client(raw, own.Client()).Handshake(); err != nil {
		t.Fatal(err)
	}
	if _, err := raw.Write([]byte("no record of TLS, and long enough to have a header")); err != nil {
		t.Fatal(err)
	}
	if err := recv(t, ended, "the end of the connection"); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("it ends with %v", err)
	}
	sum := int64(0)
	for _, n := range e.Stats().TLSFailures {
		sum += n
	}
	if st := e.Stats(); sum != 1 || st.Handshakes != 1 || st.Open != 0 {
		t.Errorf("%+v", st)
	}
}

// TestSocketTruncated: the end of the bytes without close_notify is an error, on a loop and beyond, since bytes may be missing.
func TestSocketTruncated(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, Options{})
	left, ended := make(chan loop.Socket, 1), make(chan error, 1)
	for addr, truncated := range map[string]func() error{
		listen(t, e, ListenOptions{TLS: own.Server}, leaver(t, left)): func() error {
			sock := recv(t, left, "the connection to leave its loop")
			defer sock.Close()
			_ = sock.SetReadDeadline(time.Now().Add(waitLimit))
			b, err := io.ReadAll(sock)
			if string(b) != "part" {
				t.Errorf("read %q", b)
			}
			return err
		},
		listen(t, e, ListenOptions{TLS: own.Server}, func() loop.Receiver {
			return &stream{close: func(err error) { ended <- err }}
		}): func() error { return recv(t, ended, "the end of the connection") },
	} {
		raw := dial(t, addr)
		peer := tls.Client(raw, own.Client())
		if _, err := peer.Write([]byte("part")); err != nil {
			t.Fatal(err)
		}
		_ = raw.CloseWrite()
		if err := truncated(); !errors.Is(err, errTruncated) {
			t.Errorf("it ends with %v", err)
		}
	}
}

// TestDialledSocketTruncated: likewise of a Socket that was dialled.
func TestDialledSocketTruncated(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, withTLS(Options{}, own))
	ln := must.Listen(t)
	go func() {
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		_, _ = tls.Server(nc, own.Server()).Write([]byte("part"))
		_ = nc.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, nc)
	}()
	sock, err := e.SocketDialer().Dial(t.Context(), ln.Addr().String(), "service", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	_ = sock.SetReadDeadline(time.Now().Add(waitLimit))
	if b, err := io.ReadAll(sock); string(b) != "part" || !errors.Is(err, errTruncated) {
		t.Errorf("read %q, %v", b, err)
	}
}

// TestSocketOfProxied: the peer of a Socket is the client that a proxy has named, with TLS and without.
func TestSocketOfProxied(t *testing.T) {
	own := NewIdentity(t)
	for _, secure := range []bool{false, true} {
		left := make(chan loop.Socket, 1)
		o := ListenOptions{Proxies: &Proxies{
			Trusts: func(netip.Addr) bool { return true }, Wait: func() time.Duration { return waitLimit }, Refused: func(string, error) {},
		}}
		if secure {
			o.TLS = own.Server
		}
		nc := net.Conn(dial(t, listen(t, start(t, Options{}), o, leaver(t, left))))
		if _, err := nc.Write([]byte(header)); err != nil {
			t.Fatal(err)
		}
		if secure {
			if err := tls.Client(nc, own.Client()).Handshake(); err != nil {
				t.Fatal(err)
			}
		}
		sock := recv(t, left, "the connection to leave its loop")
		if got := sock.(net.Conn).RemoteAddr().String(); got != "192.0.2.1:56324" || sock.Secure() != secure {
			t.Errorf("secure %t: the peer is %s", secure, got)
		}
		if local := sock.(net.Conn).LocalAddr().String(); local != nc.RemoteAddr().String() {
			t.Errorf("secure %t: the local address is %s", secure, local)
		}
		sock.Close()
	}
}

// TestTLSClosedSilently: the error tells an endpoint that ends the connection without a byte from an endpoint that breaks the handshake off.
func TestTLSClosedSilently(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, withTLS(Options{}, own))
	for says, silent := range map[string]bool{"": true, "\x16": false, "\x16\x03\x03": false, "\x15\x03\x03\x00\x02\x01\x5a": false} {
		ln := must.Listen(t)
		go func() {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			defer nc.Close()
			_, _ = io.WriteString(nc, says)
			_ = nc.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, nc)
		}()
		ended := make(chan error, 1)
		e.loops[0].Post(func() {
			e.loops[0].Dial(ln.Addr().String(), waitLimit, &stream{close: func(err error) { ended <- err }})
		})
		if err := recv(t, ended, "the end of the dial"); errors.Is(err, errClosedSilently) != silent || err == nil {
			t.Errorf("after %q: %v", says, err)
		}
	}
}
