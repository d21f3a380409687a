package reactor

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/syncbuffer"
	"github.com/remora-proxy/remora/internal/testcerts"
	"github.com/remora-proxy/remora/proxy/certs"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// bytewise is a connection that writes single bytes.
type bytewise struct{ net.Conn }

func (c bytewise) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		_, err = c.Conn.Write(b[n : n+1])
		n++
	}
	return n, err
}

// limitOutput lets the kernel take little output of each accepted connection.
func limitOutput(ln *net.TCPListener) error {
	raw, err := ln.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, 4<<10) })
	return errors.Join(err, failed)
}

// TestTLSFlights: a flight may arrive in any pieces, and may be longer than what the kernel takes at once.
func TestTLSFlights(t *testing.T) {
	ca := testcerts.New(t)
	names := []string{meshName}
	for i := range 4000 {
		names = append(names, fmt.Sprintf("name-%d.of-a-server-that-has-many-of-them.test", i))
	}
	cert, key := ca.Issue(testcerts.Leaf{Names: names})
	long := openIdentity(t, testcerts.NewDir(t, ca, cert, key))
	for name, c := range map[string]struct {
		own  *certs.Source // of both sides
		wrap func(net.Conn) net.Conn
	}{
		"single bytes": {NewIdentity(t), func(c net.Conn) net.Conn { return bytewise{c} }},
		"long":         {long, func(c net.Conn) net.Conn { return c }},
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t, Options{})
			ln, err := Bind("127.0.0.1:0")
			if err == nil {
				err = limitOutput(ln.(*net.TCPListener))
			}
			if err != nil {
				t.Fatal(err)
			}
			l, err := e.Serve(ln, ListenOptions{TLS: c.own.Server}, func(loop.Loop, string) loop.Receiver { return echo() })
			if err != nil {
				t.Fatal(err)
			}
			raw := dial(t, l.Addr().String())
			if got := ask(t, tls.Client(c.wrap(raw), c.own.Client()), "hello"); got != "hello" {
				t.Errorf("got %q", got)
			}
		})
	}
}

// TestTLSHandshakeBroken: a peer that ends within the handshake, or sends nonsense, is a failure whose cause is logged, and holds
// nothing afterwards.
func TestTLSHandshakeBroken(t *testing.T) {
	own := NewIdentity(t)
	for name, broken := range map[string]struct {
		end   func(c *net.TCPConn)
		cause string // in the log
	}{
		"end":      {func(c *net.TCPConn) { _ = c.CloseWrite() }, "error=EOF"},
		"reset":    {func(c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() }, `error="connection reset by peer"`},
		"nonsense": {func(c *net.TCPConn) { _, _ = io.WriteString(c, "\x17\x03\x03\x00\x02hi") }, "error=\"local error: tls: bad record MAC\""},
	} {
		t.Run(name, func(t *testing.T) {
			var log syncbuffer.Buffer
			e := start(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			c := dial(t, listen(t, e, ListenOptions{TLS: own.Server}, echo))
			_, _ = c.Write(clientHello(t, own))
			awaitWaiting(t, e, 1)
			broken.end(c)
			awaitFailure(t, e, CodeFailed, 1)
			_, _ = io.Copy(io.Discard, c) // until the listener has ended it
			_ = c.Close()
			eventually(t, func() error {
				if s := log.String(); !strings.Contains(s, broken.cause+" ") {
					return fmt.Errorf("the log has no %s: %s", broken.cause, s)
				}
				return nil
			})
			eventually(t, func() error {
				taken, _ := e.handshakes.inProgress()
				if st := e.Stats(); taken > 0 || st.Open != 0 || st.Inbound != 0 {
					return fmt.Errorf("%d handshakes, %+v", taken, st)
				}
				return nil
			})
		})
	}
}

// TestTLSArrivalWithOutput: a newcomer may become a connection while it has output that the kernel has not taken.
func TestTLSArrivalWithOutput(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, Options{})
	l := e.loops[0]
	filling := make([]byte, 16<<20) // more than sockets buffer; the client takes it off before package tls reads
	config := func() *tls.Config {
		c := own.Server().Clone()
		c.VerifyConnection = func(tls.ConnectionState) error {
			filled := make(chan error, 1)
			l.Post(func() {
				var err error
				for n := range l.newcomers {
					if errno := n.write(filling); errno != 0 {
						err = errno
					}
				}
				filled <- err
			})
			return <-filled
		}
		return c
	}
	left := make(chan int, 1)
	addr := listen(t, e, ListenOptions{TLS: config}, func() loop.Receiver {
		r := echo().(*stream)
		opened := r.open
		r.open = func(c loop.Conn) {
			opened(c)
			left <- c.Buffered()
		}
		return r
	})
	raw := dial(t, addr)
	c := tls.Client(raw, own.Client())
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	must.Write(t, c, "hello")
	if recv(t, left, "the connection") == 0 {
		t.Error("no output was left")
	}
	must.Read(t, raw, len(filling))
	if got := must.Read(t, c, 5); string(got) != "hello" {
		t.Errorf("got %q", got)
	}
}

// TestTLSHandshakeIdle: a handshake may have to give way only while it waits for its peer, not while it waits for its
// loop or works.
func TestTLSHandshakeIdle(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, Options{})
	l := e.loops[0]
	busy, verifying, verify := make(chan chan struct{}, 1), make(chan struct{}), make(chan struct{})
	defer close(verify)
	config := func() *tls.Config {
		c := own.Server().Clone()
		c.VerifyConnection = func(tls.ConnectionState) error {
			close(verifying)
			<-verify
			return nil
		}
		busy <- holdLoop(l)
		return c
	}
	client := tls.Client(dial(t, listen(t, e, ListenOptions{TLS: config}, echo)), own.Client())
	go func() { _ = client.Handshake() }()
	release := recv(t, busy, "the handshake to begin")
	eventually(t, func() error {
		if !l.posts.some.Load() {
			return errors.New("the handshake does not wait for its loop")
		}
		return nil
	})
	if e.handshakes.places.Idle() > 0 {
		t.Error("it waits for its loop, and may have to give way")
	}
	close(release)
	recv(t, verifying, "the client's flight")
	if e.handshakes.places.Idle() > 0 {
		t.Error("it works, and may have to give way")
	}
}

// TestTLSRefusedHandshake: a handshake that has failed holds no place while its connection waits for the peer's end, and the rest of
// the input is read, since a close would reset the connection.
func TestTLSRefusedHandshake(t *testing.T) {
	const size = 1 << 10 // of a read
	own := NewIdentity(t)
	e := start(t, Options{})
	l := e.loops[0]
	on(t, l, func() { l.input = l.input[:size] })
	begun, goOn := make(chan struct{}, 1), make(chan struct{}, 1)
	defer close(goOn)
	addr := listen(t, e, ListenOptions{TLS: func() *tls.Config {
		begun <- struct{}{}
		<-goOn
		return own.Server()
	}}, echo)
	rest := append([]byte("\x17\x03\x03\x00\x02hi"), make([]byte, 10*size)...)
	eventually(t, func() error { // again if the connection has waited too long
		c := dial(t, addr)
		must.Write(t, c, clientHello(t, own))
		recv(t, begun, "the handshake")
		must.Write(t, c, rest)
		goOn <- struct{}{}
		if _, err := io.ReadAll(c); err != nil {
			return err
		}
		refused, taken, unread := 0, 0, 0
		on(t, l, func() {
			for n := range l.newcomers {
				if n.state == newcomerRefused {
					refused++
					unread, _ = kernel.Unread(n.fd)
				}
			}
			taken, _ = e.handshakes.inProgress()
		})
		if unread > 0 {
			return fmt.Errorf("%d bytes are not read", unread)
		}
		if refused == 0 {
			return errors.New("no connection waits for the peer's end")
		}
		if taken > 0 {
			t.Errorf("%d places are taken", taken)
		}
		return nil
	})
}
