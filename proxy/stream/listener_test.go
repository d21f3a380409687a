package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/proxy/reactor"
	"github.com/remora-proxy/remora/proxy/reactor/backlogtest"
)

// TestCloseAcceptsBacklog: connections that wait at a listener's sockets when it closes are served, and not
// reset.
func TestCloseAcceptsBacklog(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	before := openFiles(t)
	for range 10 {
		var sockets []net.Listener
		var clients, servers []net.Conn
		for _, addr := range []string{"127.0.0.1:0", "127.0.0.1:0", "unix:" + filepath.Join(t.TempDir(), "s")} {
			ln, err := reactor.Bind(addr)
			if err != nil {
				t.Fatal(err)
			}
			sockets = append(sockets, ln)
			for range 10 {
				c, err := net.Dial(ln.Addr().Network(), ln.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(waitLimit))
				clients = append(clients, c)
			}
			awaitBacklog(t, ln, 10)
		}
		l, err := s.srv.Serve(sockets[0], &s.proc.Config().Listeners[0], sockets[1:]...)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
		for range clients {
			nc := receive(t, a.conns, "the application to get a connection")
			if _, err := nc.Write([]byte("hello")); err != nil {
				t.Error(err)
			}
			servers = append(servers, nc)
		}
		for _, c := range clients {
			if _, err := c.Read(make([]byte, 5)); err != nil {
				t.Fatal(err)
			}
			c.Close()
		}
		for _, nc := range servers {
			nc.Close()
		}
		for _, ln := range sockets {
			if c, err := net.Dial(ln.Addr().Network(), ln.Addr().String()); err == nil {
				c.Close()
				t.Error("a connection is accepted after Close")
			}
		}
	}
	waitFilesClosed(t, before)
}

// awaitBacklog waits until n connections wait at ln.
func awaitBacklog(t *testing.T, ln net.Listener, n int) {
	t.Helper()
	raw, err := ln.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { backlogtest.Await(t, int(fd), n) }); err != nil {
		t.Fatal(err)
	}
}

var errNotClosed = errors.New("not closed")

// unclosable is a listener whose Close fails.
type unclosable struct{ net.Listener }

func (l unclosable) Close() error { return errors.Join(errNotClosed, l.Listener.Close()) }

// TestServeAfterClose: Serve of a closed Server closes the sockets. Its error is ErrClosed, and that of a socket that does not close.
func TestServeAfterClose(t *testing.T) {
	s := newSidecar(t, options{})
	if err := s.srv.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	first, second := must.Listen(t), must.Listen(t)
	if _, err := s.srv.Serve(unclosable{first}, &s.proc.Config().Listeners[0], second); !errors.Is(err, ErrClosed) || !errors.Is(err, errNotClosed) {
		t.Errorf("serving ends with %v", err)
	}
	for _, ln := range []net.Listener{first, second} {
		if c, err := net.Dial("tcp", ln.Addr().String()); err == nil {
			c.Close()
			t.Error("a socket is open")
		}
	}
}

// TestCloseAcceptsReset: connections that wait when a listener closes, and that their clients have reset, end
// alone.
func TestCloseAcceptsReset(t *testing.T) {
	for _, listener := range []string{"", proxyOnLoopback} {
		a := newApp(t)
		s := serveApp(t, "127.0.0.1:0", listener, "", a.addr, "")
		ln, err := reactor.Bind("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			c, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			_ = c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}
		// The first Accept fails, so that Close accepts all connections.
		_ = ln.(interface{ SetDeadline(time.Time) error }).SetDeadline(time.Unix(1, 0))
		l, err := s.srv.Serve(ln, &s.proc.Config().Listeners[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		s.eventually("the streams to end", func() error {
			if n := s.srv.Open(); n > 0 {
				return fmt.Errorf("%d streams are open", n)
			}
			return nil
		})
	}
}

// TestAcceptedAfterClose: a client that a listener accepts while its Server closes is reset, and counts no more.
func TestAcceptedAfterClose(t *testing.T) {
	for _, listener := range []string{"", proxyOnLoopback} {
		s := serveApp(t, "127.0.0.1:0", listener, "", "127.0.0.1:1", "")
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		defer cancel()
		if err := s.srv.Close(ctx); err != nil {
			t.Fatal(err)
		}
		counted, served := 0, make(chan struct{})
		l := &Listener{srv: s.srv, reserve: func(_, _ net.Addr) func() { counted++; return func() { counted-- } }}
		l.Configure(&s.srv.config().Listeners[0])
		client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
			_, _ = io.ReadFull(nc, make([]byte, 1)) // so that no reset comes before dialTo returns
			l.serve(nc, nc)
			close(served)
		}))
		_, _ = io.WriteString(client, "x")
		wantReset(t, "the client", client)
		if receive(t, served, "the client to be served"); counted != 0 {
			t.Errorf("%q: %d connections count", listener, counted)
		}
	}
}
