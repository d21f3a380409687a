package server_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/leaktest"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/lab/server"
)

func TestMain(m *testing.M) { leaktest.Main(m, leaktest.Netpoll) }

// timeout bounds waits. No result depends on it.
const timeout = time.Minute

// tired is a listener that fails once before each connection.
type tired struct {
	net.Listener
	failed bool
}

func (l *tired) Accept() (net.Conn, error) {
	if l.failed = !l.failed; l.failed {
		return nil, errors.New("too many open files")
	}
	return l.Listener.Accept()
}

// echo sends its input back.
func echo(c *server.Conn) server.Handler {
	return func(in []byte) (int, bool) { return len(in), c.Respond(in) }
}

// start returns a server on TCP. The test may close it before its end.
func start(t *testing.T, open func(*server.Conn) server.Handler) *server.Server {
	t.Helper()
	return startOn(t, "tcp", "127.0.0.1:0", open)
}

func startOn(t *testing.T, network, addr string, open func(*server.Conn) server.Handler) *server.Server {
	t.Helper()
	ln := must.ListenOn(t, network, addr)
	s := server.New(&tired{Listener: ln})
	s.Serve(open)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func dial(t *testing.T, s *server.Server) *net.TCPConn {
	t.Helper()
	return dialOn(t, "tcp", s).(*net.TCPConn)
}

func dialOn(t *testing.T, network string, s *server.Server) net.Conn {
	t.Helper()
	c := must.Dial(t, network, s.Addr())
	c.SetDeadline(time.Now().Add(timeout))
	return c
}

func exchange(t *testing.T, c net.Conn) {
	t.Helper()
	io.WriteString(c, "x")
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Errorf("no echo: %v", err)
	}
}

// awaitEnd reads until the connection ends, also by a reset.
func awaitEnd(t *testing.T, c net.Conn) {
	t.Helper()
	_, err := io.Copy(io.Discard, c)
	if netErr := net.Error(nil); errors.As(err, &netErr) && netErr.Timeout() {
		t.Error("the connection is open")
	}
}

// TestServe: connections are served at the same time, also after the listener has failed.
func TestServe(t *testing.T) {
	for network, addr := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")} {
		s := startOn(t, network, addr, echo)
		a, b := dialOn(t, network, s), dialOn(t, network, s)
		exchange(t, b)
		exchange(t, a)
		if n := s.Clients(); n != 2 {
			t.Errorf("%s: %d clients, want 2", network, n)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		awaitEnd(t, a)
		awaitEnd(t, b)
	}
}

// TestRest: a handler gets the input that it did not use again, with what came after it.
func TestRest(t *testing.T) {
	s := start(t, func(c *server.Conn) server.Handler {
		return func(in []byte) (used int, open bool) {
			for len(in)-used >= 3 && c.Respond(in[used:used+3]) {
				used += 3
			}
			return used, true
		}
	})
	sent := []byte("abcdefghijklmnopqrstuvwxyz01")
	for size := 1; size <= len(sent); size++ {
		c := dial(t, s)
		for b := sent; len(b) > 0; b = b[min(size, len(b)):] {
			c.Write(b[:min(size, len(b))])
		}
		got := make([]byte, 27)
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, sent[:27]) {
			t.Errorf("in pieces of %d: %q, %v", size, got, err)
		}
	}
}

// TestHalfClose: a client that has sent all gets the response, however long. Its connection ends then.
func TestHalfClose(t *testing.T) {
	long := make([]byte, 32<<20)
	read, closed := make(chan struct{}), make(chan struct{})
	s := start(t, func(c *server.Conn) server.Handler {
		c.OnClose(func() { close(closed) })
		return func(in []byte) (int, bool) {
			<-read
			return len(in), c.Respond(long)
		}
	})
	c := dial(t, s)
	io.WriteString(c, "x")
	c.CloseWrite()
	eventually.True(t, "the half-close has come", func() bool { return s.Clients() == 0 })
	close(read)
	if n, err := io.Copy(io.Discard, c); n != int64(len(long)) || err != nil {
		t.Errorf("%d bytes, want %d; %v", n, len(long), err)
	}
	<-closed
}

// TestLeave: connections of clients that leave end, also of those that never sent anything.
func TestLeave(t *testing.T) {
	const n = 50
	closed := make(chan struct{}, n)
	s := start(t, func(c *server.Conn) server.Handler {
		c.OnClose(func() { closed <- struct{}{} })
		return echo(c)
	})
	for i := range n {
		c := dial(t, s)
		if i%2 == 0 {
			io.WriteString(c, "x") // its echo may meet a reset
		}
		c.Close()
	}
	for range n {
		<-closed
	}
	if n := s.Clients(); n != 0 {
		t.Errorf("%d clients", n)
	}
}

// TestWrite: goroutines beside the handler may write, until the client has left.
func TestWrite(t *testing.T) {
	conns := make(chan *server.Conn, 1)
	s := start(t, func(c *server.Conn) server.Handler {
		conns <- c
		return echo(c)
	})
	c := dial(t, s)
	peer := <-conns
	long := make([]byte, 8<<20)
	sent := make(chan bool, 1)
	go func() { sent <- peer.Write(long) }()
	if _, err := io.ReadFull(c, make([]byte, len(long))); err != nil || !<-sent {
		t.Errorf("not sent: %v", err)
	}
	go func() { sent <- peer.Write(make([]byte, 64<<20)) }() // more than the kernel takes
	c.Close()
	if <-sent || peer.Write([]byte("x")) {
		t.Error("sent to a client that has left")
	}
	peer.Close()
}

// TestUnread: a client that sends on and on, and reads nothing, is left.
func TestUnread(t *testing.T) {
	s := start(t, echo)
	c := dial(t, s)
	b := make([]byte, 1<<20)
	for range 1 << 10 {
		if _, err := c.Write(b); err != nil {
			if netErr := net.Error(nil); errors.As(err, &netErr) && netErr.Timeout() {
				t.Error("the connection is open, and takes nothing")
			}
			return
		}
	}
	t.Error("1 GiB was taken")
}

// TestStopAccepting: connections go on without the listener, until Drop.
func TestStopAccepting(t *testing.T) {
	s := start(t, echo)
	c := dial(t, s)
	exchange(t, c)
	if err := s.StopAccepting(); err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", s.Addr()); err == nil {
		t.Error("a connection came in after StopAccepting")
	}
	exchange(t, c)
	s.Drop()
	awaitEnd(t, c)
	<-s.Context().Done()
}

// TestDropBusy: a client sees the end although its handler goes on, and Close waits for the handler.
func TestDropBusy(t *testing.T) {
	began, finish, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	s := start(t, func(c *server.Conn) server.Handler {
		c.OnClose(func() { close(ended) })
		return func(in []byte) (int, bool) {
			close(began)
			<-finish
			return len(in), c.Respond([]byte("late"))
		}
	})
	c := dial(t, s)
	io.WriteString(c, "x")
	<-began
	s.Drop()
	awaitEnd(t, c)
	select {
	case <-ended:
		t.Error("the connection ended before its handler")
	default:
	}
	close(finish)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-ended:
	default:
		t.Error("Close did not wait for the handler")
	}
}

// TestDescriptorReuse: the end of a connection does not reach the next one.
func TestDescriptorReuse(t *testing.T) {
	for range 300 {
		ln := must.Listen(t)
		s := server.New(ln)
		s.Serve(echo)
		c := dial(t, s)
		exchange(t, c)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}
}
