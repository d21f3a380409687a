package reactor

import (
	"io"
	"testing"

	"github.com/remora-proxy/remora/proxy/loop"
)

// halfOpen is a stream that stays when its peer has ended its side.
type halfOpen struct {
	stream
	end func()
}

// OnEnd implements loop.HalfCloser.
func (s *halfOpen) OnEnd() bool {
	s.end()
	return true
}

// TestHalfOpenRests: a connection whose peer has ended its side, and reads nothing or a little, gives the loop no
// events without end, although it stays ready to read.
func TestHalfOpenRests(t *testing.T) {
	e := start(t, Options{Loops: 1})
	l := e.loops[0]
	ended, closed := make(chan struct{}, 2), make(chan error, 1)
	var c *conn
	addr := listen(t, e, ListenOptions{}, func() loop.Receiver {
		s := &halfOpen{end: func() {
			c.Write(make([]byte, 32<<20)) // more than the kernel takes
			ended <- struct{}{}
		}}
		s.open = func(opened loop.Conn) { c = opened.(*conn) }
		s.close = func(err error) { closed <- err }
		return s
	})
	nc := dial(t, addr)
	if err := nc.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	recv(t, ended, "the peer's end")
	events := func() (n uint64) {
		on(t, l, func() { n = l.stats.Events })
		return n
	}
	before := events()
	for range 1000 { // turns of the loop
		on(t, l, func() {})
	}
	if n := events() - before; n > 20 {
		t.Errorf("%d events of a connection at which nothing happens", n)
	}
	if len(ended) > 0 {
		t.Error("OnEnd was called twice")
	}
	_ = nc.SetLinger(0)
	nc.Close()
	if err := recv(t, closed, "the end"); err == nil {
		t.Error("no error after a reset")
	}
}

// TestDrainOfHalfOpen: a drain of a connection whose peer has ended its side ends at once, if all output was sent.
func TestDrainOfHalfOpen(t *testing.T) {
	e := start(t, Options{})
	e.linger = waitLimit
	var c *conn
	state := make(chan connState, 1)
	addr := listen(t, e, ListenOptions{}, func() loop.Receiver {
		s := &halfOpen{end: func() {
			c.Write([]byte("last"))
			c.loop.Post(func() { c.Drain(); state <- c.state })
		}}
		s.open = func(opened loop.Conn) { c = opened.(*conn) }
		return s
	})
	nc := dial(t, addr)
	if err := nc.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := recv(t, state, "the drain"); got != connClosed {
		t.Errorf("the state is %d", got)
	}
	if b, err := io.ReadAll(nc); string(b) != "last" || err != nil {
		t.Errorf("read %q, %v", b, err)
	}
}
