package reactor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// TestDrainSendsAll: Drain sends all output, although the kernel does not take it at
// once and the peer has sent input that stays unread.
func TestDrainSendsAll(t *testing.T) {
	e := start(t, Options{})
	closed := make(chan error, 1)
	body := bytes.Repeat([]byte("0123456789abcdef"), 32<<20/16)
	c, peer := accepted(t, e, &stream{close: func(err error) { closed <- err }})
	// The peer sends input that stays unread, before and after the drain begins.
	flood := make([]byte, 1<<20)
	go func() {
		for {
			if _, err := peer.Write(flood); err != nil {
				return
			}
		}
	}()
	on(t, c.loop, func() {
		c.Write(body)
		c.Drain()
		c.Write([]byte("too late"))
		if c.Buffered() == 0 {
			t.Error("the kernel took all output: the test proves nothing")
		}
	})
	got, err := io.ReadAll(peer)
	if !bytes.Equal(got, body) {
		t.Errorf("%d of %d bytes arrived, then %v", len(got), len(body), err)
	}
	if err := recv(t, closed, "OnClose"); err != nil {
		t.Errorf("OnClose(%v)", err)
	}
}

// TestDrainLingers: the kernel may still hold the response when the loop has written it.
// If input arrived at a closed socket, the kernel would discard the response.
func TestDrainLingers(t *testing.T) {
	e := start(t, Options{})
	e.linger = time.Hour // the peer's end comes first
	response := bytes.Repeat([]byte("response"), 64<<10)
	drained := make(chan connState, 1)
	var c loop.Conn
	s := &stream{open: func(oc loop.Conn) { c = oc }}
	s.data = func([]byte) {
		c.Write(response)
		c.Drain()
		drained <- c.(*conn).state
	}
	_, peer := accepted(t, e, s)
	_ = peer.SetReadBuffer(32 << 10) // so that most of it stays on our side
	must.Write(t, peer, "request")
	if state := recv(t, drained, "the drain"); state == connDraining {
		t.Skip("the kernel did not take the response at once")
	}
	must.Write(t, peer, "more, not asked for")
	if got, err := io.ReadAll(peer); !bytes.Equal(got, response) {
		t.Errorf("%d of %d bytes arrived, then %v", len(got), len(response), err)
	}
}

// TestDrainSlowReader: a peer that reads the kernel's output slower than the linger time
// receives all of it, although it sends input meanwhile.
func TestDrainSlowReader(t *testing.T) {
	e := start(t, Options{})
	e.linger = time.Millisecond
	response := bytes.Repeat([]byte("response"), 64<<10)
	c, peer := accepted(t, e, &stream{})
	_ = peer.SetReadBuffer(32 << 10) // so that most of it stays on our side
	lingered := make(chan struct{})
	on(t, c.loop, func() {
		c.Write(response)
		c.Drain()
		c.loop.After(10*e.linger, &loop.Timer{Fire: func() { close(lingered) }})
	})
	recv(t, lingered, "the linger to have passed")
	must.Write(t, peer, "not asked for")
	if got, err := io.ReadAll(peer); !bytes.Equal(got, response) {
		t.Errorf("%d of %d bytes arrived, then %v", len(got), len(response), err)
	}
}

// TestDrainEnds: a drain ends at the peer's end of file, or after the linger time, or
// when the peer reads nothing for WriteStall.
func TestDrainEnds(t *testing.T) {
	cases := []struct {
		name string
		size int
		peer func(peer *net.TCPConn)
	}{
		{"peer closes", 10, func(p *net.TCPConn) { p.Close() }},
		{"peer shuts down", 10, func(p *net.TCPConn) { p.CloseWrite() }},
		{"peer resets", 10, func(p *net.TCPConn) { p.SetLinger(0); p.Close() }},
		{"peer stays", 10, func(p *net.TCPConn) {}},
		{"peer resets, output left", 64 << 20, func(p *net.TCPConn) { p.SetLinger(0); p.Close() }},
		{"peer takes nothing", 64 << 20, func(p *net.TCPConn) {}},
		{"peer takes nothing of what the kernel has", 1 << 20, func(p *net.TCPConn) {}},
		{"peer takes a part", 64 << 20, func(p *net.TCPConn) { _, _ = io.CopyN(io.Discard, p, 1<<20) }},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			e := start(t, Options{WriteStall: 50 * time.Millisecond})
			e.linger = 10 * time.Millisecond
			closed := make(chan error, 1)
			c, peer := accepted(t, e, &stream{
				data:  func([]byte) { t.Error("OnData after Drain") },
				close: func(err error) { closed <- err },
			})
			on(t, c.loop, func() {
				c.Write(make([]byte, tc.size))
				c.Drain()
				c.Drain()
			})
			_, _ = peer.Write([]byte("dropped"))
			tc.peer(peer)
			if err := recv(t, closed, "OnClose"); err != nil {
				t.Errorf("OnClose(%v)", err)
			}
			on(t, c.loop, func() {
				if c.drain.timer.Armed() || len(c.loop.conns) > 0 || e.Stats().Open > 0 {
					t.Error("the connection is still counted")
				}
			})
		})
	}
}

// TestFinish: Finish closes a connection at once if nothing is left to read or to send, and otherwise as Drain does.
func TestFinish(t *testing.T) {
	e := start(t, Options{})
	e.linger = time.Hour // the end of the peer ends a drain
	for _, unread := range []bool{false, true} {
		closed := make(chan error, 1)
		c, peer := accepted(t, e, &stream{close: func(err error) { closed <- err }})
		want := connClosed
		if unread {
			want = connLinger
		}
		held, arrived, finished := make(chan struct{}), make(chan struct{}), make(chan struct{})
		c.loop.Post(func() {
			defer close(finished)
			close(held)
			// The loop does not read what arrives until then.
			<-arrived
			for range 2 { // the second time nothing happens
				c.Write([]byte("last"))
				if c.Finish(); c.state != want {
					t.Errorf("input is unread: %t, the state is %d", unread, c.state)
				}
			}
		})
		recv(t, held, "the loop")
		if unread {
			must.Write(t, peer, "more")
			eventually(t, func() error {
				if n, err := kernel.Unread(c.fd); err != nil || n == 0 {
					return fmt.Errorf("nothing has arrived (%v)", err)
				}
				return nil
			})
		}
		close(arrived)
		recv(t, finished, "the end of Finish")
		got := must.Read(t, peer, 4)
		if n, err := peer.Read(make([]byte, 1)); string(got) != "last" || n > 0 || err != io.EOF {
			t.Errorf("input is unread: %t, the peer got %q, then %d bytes and %v", unread, got, n, err)
		}
		peer.Close()
		if err := recv(t, closed, "OnClose"); err != nil {
			t.Errorf("OnClose(%v)", err)
		}
	}
}

// TestCloseDuringDrain: Close ends a drain at once, with a reset.
func TestCloseDuringDrain(t *testing.T) {
	e := start(t, Options{})
	closed := make(chan error, 2)
	c, peer := accepted(t, e, &stream{close: func(err error) { closed <- err }})
	on(t, c.loop, func() {
		c.Write(make([]byte, 64<<20))
		c.Drain()
		c.Close()
		c.Close()
	})
	if err := recv(t, closed, "OnClose"); err != nil {
		t.Errorf("OnClose(%v)", err)
	}
	// Truncated output must not look complete.
	if n, err := io.Copy(io.Discard, peer); !isReset(err) {
		t.Errorf("the peer got %d bytes, then %v", n, err)
	}
}

// TestDrainAfterHalfClose: a peer that has sent its end receives all that a drain sends.
func TestDrainAfterHalfClose(t *testing.T) {
	e := start(t, Options{})
	e.linger = time.Hour // the end of the peer ends the drain
	closed := make(chan error, 1)
	body := bytes.Repeat([]byte("0123456789abcdef"), 16<<20/16)
	c, peer := accepted(t, e, &stream{close: func(err error) { closed <- err }})
	on(t, c.loop, func() {
		c.Write(body)
		c.Drain()
		if c.Buffered() == 0 {
			t.Error("the kernel took all output: the test proves nothing")
		}
	})
	if err := peer.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		ended := false
		on(t, c.loop, func() {
			_, errno := kernel.Receive(c.fd, make([]byte, 1))
			ended = errno == 0
		})
		if !ended {
			return errors.New("the kernel has not seen the end")
		}
		return nil
	})
	on(t, c.loop, func() {}) // a turn that has the event
	got, err := io.ReadAll(peer)
	if !bytes.Equal(got, body) || err != nil {
		t.Errorf("%d of %d bytes arrived, then %v", len(got), len(body), err)
	}
	if err := recv(t, closed, "OnClose"); err != nil {
		t.Errorf("OnClose(%v)", err)
	}
}

// TestDrainTLS: a drain tells the peer that its output is complete.
func TestDrainTLS(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, withTLS(Options{}, own))
	l := e.loops[0]
	addr := listen(t, e, ListenOptions{TLS: own.Server}, func() loop.Receiver {
		return &stream{open: func(c loop.Conn) {
			c.Write([]byte("last"))
			c.Drain()
		}}
	})
	var got []byte
	closed := make(chan error, 1)
	on(t, l, func() {
		l.Dial(addr, waitLimit, &stream{data: func(b []byte) { got = append(got, b...) }, close: func(err error) { closed <- err }})
	})
	if err := recv(t, closed, "OnClose"); err != io.EOF || string(got) != "last" {
		t.Errorf("got %q, OnClose(%v)", got, err)
	}
}

// TestDrainCountsAnew: once the loop has no output left, the output of the kernel counts, and the time of its progress begins anew.
func TestDrainCountsAnew(t *testing.T) {
	e := start(t, Options{})
	e.linger = time.Hour
	c, peer := accepted(t, e, &stream{})
	_ = peer.SetReadBuffer(32 << 10) // so that most of the output stays on our side
	on(t, c.loop, func() {
		if err := unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 1<<20); err != nil {
			t.Error(err)
		}
		c.Write(make([]byte, 256<<10))
		if c.Drain(); c.state != connLinger {
			t.Errorf("the kernel did not take all output: the state is %d", c.state)
			return
		}
		check := func() { c.loop.now += e.writeStall(); c.drain.check() }
		if check(); c.state != connLinger {
			t.Errorf("after the first check the state is %d", c.state)
		}
		for n := 0; c.state == connLinger; n++ { // the peer's kernel may take some bytes more
			if check(); n > 1000 {
				t.Error("the drain of a peer that takes nothing does not end")
				break
			}
		}
	})
}

// TestDrainWaits: a drain whose peer takes nothing looks again when it will have stalled.
func TestDrainWaits(t *testing.T) {
	e := start(t, Options{WriteStall: time.Hour})
	c, _ := accepted(t, e, &stream{})
	on(t, c.loop, func() {
		c.Write(make([]byte, 64<<20))
		c.Drain()
		if at, ok := c.loop.timers.Next(); !ok || at != c.drain.progress+time.Hour {
			t.Errorf("looks again at %d, want %d", at, c.drain.progress+time.Hour)
		}
		c.Close()
	})
}

// TestDrainStalls: a drain has stalled when no byte was taken for WriteStall. Each byte begins the time anew.
func TestDrainStalls(t *testing.T) {
	const stall = time.Second
	l := &eventLoop{reactor: &Reactor{}}
	l.reactor.SetWriteStall(stall)
	d := &drain{c: &conn{descriptor: descriptor{loop: l}}, left: 10}
	for _, c := range []struct {
		at   time.Duration
		left int
		want bool
	}{
		{stall - 1, 10, false},
		{stall, 10, true},
		{stall, 9, false},
		{2*stall - 1, 9, false},
		{2 * stall, 9, true},
		{2 * stall, 8, false},
		{3*stall - 1, 8, false},
	} {
		if l.now = c.at; d.stalled(c.left) != c.want {
			t.Errorf("with %d bytes left at %s: stalled is %t", c.left, c.at, !c.want)
		}
	}
}

// TestDrainOfReset: a drain of a connection that the peer has reset ends at once.
func TestDrainOfReset(t *testing.T) {
	e := start(t, Options{})
	e.linger = time.Hour
	closed := make(chan error, 1)
	c, peer := accepted(t, e, &stream{close: func(err error) { closed <- err }})
	on(t, c.loop, func() {
		reset(t, peer, c.fd)
		if c.Drain(); c.state != connClosed || c.drain.timer.Armed() {
			t.Errorf("the state is %d, the timer is armed: %t", c.state, c.drain.timer.Armed())
		}
	})
	if err := recv(t, closed, "OnClose"); err != nil {
		t.Errorf("OnClose(%v)", err)
	}
}
