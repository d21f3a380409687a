package server_test

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/leaktest"
	"github.com/remora-proxy/remora/lab/server"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

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
func echo(nc net.Conn) { io.Copy(nc, nc) }

func start(t *testing.T) (*server.Server, func() net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := server.New(&tired{Listener: ln})
	s.Serve(echo)
	return s, func() net.Conn {
		c, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(timeout))
		return c
	}
}

func exchange(t *testing.T, c net.Conn) {
	t.Helper()
	io.WriteString(c, "x")
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Errorf("no echo: %v", err)
	}
}

// TestServe: connections are served at the same time, also after the listener has failed.
func TestServe(t *testing.T) {
	s, dial := start(t)
	a, b := dial(), dial()
	exchange(t, b)
	exchange(t, a)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := a.Read(make([]byte, 1)); err == nil {
		t.Error("a connection is open after Close")
	}
}

// TestStopAccepting: connections go on without the listener, until Drop.
func TestStopAccepting(t *testing.T) {
	s, dial := start(t)
	c := dial()
	exchange(t, c)
	if err := s.StopAccepting(); err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", s.Addr()); err == nil {
		t.Error("a connection came in after StopAccepting")
	}
	exchange(t, c)
	s.Drop()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("a connection is open after Drop")
	}
	<-s.Context().Done()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
