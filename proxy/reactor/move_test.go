package reactor

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// mover is an echo whose connection may move.
type mover struct {
	stream
	on          loop.Loop
	stays       bool
	asked, past int
	movedIn     *atomic.Int32 // nil or the number of calls of MoveIn
}

func (m *mover) MoveOut() (int, bool) {
	m.asked++
	return m.asked + m.past, !m.stays
}

func (m *mover) MoveIn(past int) {
	if m.past = past; m.movedIn != nil {
		m.movedIn.Add(1)
	}
}

// movers listens for connections that may move, and counts their streams by loop.
func movers(t *testing.T, e *Reactor, o ListenOptions, change func(*mover)) (addr string, opened []atomic.Int32) {
	opened = make([]atomic.Int32, len(e.loops))
	l, err := e.Listen("127.0.0.1:0", o, func(at loop.Loop, _ string) loop.Receiver {
		opened[at.(*eventLoop).index].Add(1)
		m := &mover{on: at}
		var conn loop.Conn
		m.open = func(c loop.Conn) { conn = c }
		m.data = func(b []byte) { conn.Write(b) }
		if change != nil {
			change(m)
		}
		return m
	})
	if err != nil {
		t.Fatal(err)
	}
	return l.Addr().String(), opened
}

// holdMoves makes every other loop move part of the connections to a loop, at most room of them, until the
// next call.
func holdMoves(t *testing.T, e *Reactor, part float64, room, to int) {
	for _, l := range e.loops {
		if l.index == to {
			holdMovesOf(t, l, 0, 0, nil)
		} else {
			holdMovesOf(t, l, part, room, e.loops[to])
		}
	}
}

func holdMovesOf(t testing.TB, l *eventLoop, part float64, room int, to *eventLoop) {
	on(t, l, func() {
		m := &l.moving
		l.use.since = math.MaxInt64 - time.Hour
		m.window++
		m.to, m.until, m.part, m.debt, m.left = to, math.MaxInt64, part, 0, room
	})
}

// TestMove: connections move between two requests, lose nothing, and count as before.
func TestMove(t *testing.T) {
	const conns = 8
	e := start(t, Options{Loops: 2})
	holdMoves(t, e, 0, 0, 0)
	closed := make(chan error, conns)
	var movedIn atomic.Int32
	addr, opened := movers(t, e, ListenOptions{}, func(m *mover) {
		m.stream.close = func(err error) { closed <- err }
		m.movedIn = &movedIn
	})
	peers := make([]net.Conn, conns)
	for i := range peers {
		peers[i] = dial(t, addr)
		ask(t, peers[i], "before")
	}
	elsewhere := int(opened[0].Load())
	holdMoves(t, e, 1, conns, 1)
	before := e.Stats()
	for range 3 {
		for _, p := range peers {
			if got := ask(t, p, "after"); got != "after" {
				t.Errorf("echo %q", got)
			}
		}
	}
	if n := movedIn.Load(); int(n) != elsewhere {
		t.Errorf("%d streams know of a former one, want %d", n, elsewhere)
	}
	for range elsewhere {
		if err := recv(t, closed, "the stream's end on the first loop"); err != nil {
			t.Errorf("the stream ended with %v", err)
		}
	}
	if got := opened[1].Load(); got != conns {
		t.Errorf("%d streams on the second loop, want %d", got, conns)
	}
	after := e.Stats()
	if before.Accepted != after.Accepted || before.Inbound != after.Inbound || before.Open != after.Open {
		t.Errorf("counts changed from %+v to %+v", before, after)
	}
	if l := [2]int64{e.loops[0].load.Load(), e.loops[1].load.Load()}; l != [2]int64{int64(elsewhere), int64(conns - elsewhere)} {
		t.Errorf("connections that came to the loops first: %d, want %d on the first", l, elsewhere)
	}
	on(t, e.loops[0], func() {
		if s := e.loops[0].Stats(); s.Moved != uint64(elsewhere) || s.Connections != 0 {
			t.Errorf("loop 0 has %d connections, and moved %d, want %d", s.Connections, s.Moved, elsewhere)
		}
	})
	for _, p := range peers {
		_ = p.Close()
		if err := recv(t, closed, "the end"); !errors.Is(err, io.EOF) {
			t.Errorf("ended with %v", err)
		}
	}
	if l := [2]int64{e.loops[0].load.Load(), e.loops[1].load.Load()}; l != [2]int64{} || e.Stats().Inbound != 0 {
		t.Errorf("after the end the loops count %d connections, and the reactor %d", l, e.Stats().Inbound)
	}
}

// TestMoveRedirected: the first bytes of a redirected connection, which were read to know its protocol, are not read again by the loop to
// which the connection moves.
func TestMoveRedirected(t *testing.T) {
	e := start(t, Options{Loops: 2})
	holdMoves(t, e, 0, 0, 0)
	e.originalDst = func(*net.TCPConn) netip.AddrPort { return elsewhere }
	addr, opened := movers(t, e, ListenOptions{Transparent: &Transparent{Wait: waitLimit, Guarded: func() bool { return false }}}, func(m *mover) {
		data := m.data
		m.data = func(b []byte) {
			if len(b) == 0 {
				t.Error("OnData without bytes")
			}
			data(b)
		}
	})
	nc := dial(t, addr)
	const request = "GET / HTTP/1.1\r\n"
	if got := ask(t, nc, request); got != request {
		t.Errorf("echo %q", got)
	}
	to := int(opened[0].Load()) // the other loop
	holdMoves(t, e, 1, 1, to)
	if got := ask(t, nc, "after"); got != "after" || opened[to].Load() != 1 {
		t.Errorf("echo %q after %d moves", got, opened[to].Load())
	}
}

// TestNotMoved: what keeps a connection on its loop.
func TestNotMoved(t *testing.T) {
	own := NewIdentity(t)
	cases := []struct {
		name   string
		part   float64
		room   int
		listen ListenOptions
		change func(*mover)
	}{
		{name: "the stream stays", part: 1, room: 1, change: func(m *mover) { m.stays = true }},
		{name: "no room", part: 1},
		{name: "its part is less than one", part: 0.5, room: 1},
		{name: "TLS", part: 1, room: 1, listen: ListenOptions{TLS: own.Server}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			e := start(t, Options{Loops: 2})
			holdMoves(t, e, 0, 0, 0)
			addr, opened := movers(t, e, c.listen, c.change)
			var p net.Conn = dial(t, addr)
			if c.listen.TLS != nil {
				p = tls.Client(p, own.Client())
			}
			ask(t, p, "before")
			at := 0
			if opened[1].Load() > 0 {
				at = 1
			}
			holdMoves(t, e, c.part, c.room, 1-at)
			ask(t, p, "after")
			ask(t, p, "again")
			if opened[1-at].Load() != 0 || opened[at].Load() != 1 {
				t.Error("it moved")
			}
		})
	}
}

// TestNotMovedNow: a connection that has output, or is about to end, does not move.
func TestNotMovedNow(t *testing.T) {
	for name, before := range map[string]func(c *conn){
		"output":                         func(c *conn) { c.keep([]byte{'x'}) },
		"drain":                          func(c *conn) { c.Drain() },
		"closed":                         func(c *conn) { c.Close() },
		"had input in this window":       func(c *conn) { c.inputIn = c.loop.moving.window },
		"as many as may have moved":      func(c *conn) { c.loop.moving.left = 0 },
		"outside of the part that moves": func(c *conn) { c.loop.moving.part = 0.99 },
		"its listener has no other loop": func(c *conn) { c.listener = &Listener{loops: c.listener.loops[:1]} },
		"dialled":                        func(c *conn) { c.listener = nil },
		"its receiver can't move":        func(c *conn) { c.receiver = &stream{} },
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t, Options{Loops: 2})
			holdMoves(t, e, 0, 0, 0)
			addr, _ := movers(t, e, ListenOptions{}, nil)
			release := holdLoop(e.loops[1]) // so the first one accepts
			defer close(release)
			p := dial(t, addr)
			ask(t, p, "before")
			holdMovesOf(t, e.loops[0], 1, 1, e.loops[1])
			on(t, e.loops[0], func() {
				l := e.loops[0]
				c := l.conns[0]
				before(c)
				left := l.moving.left
				if l.moving.move(c) || l.stats.Moved != 0 || l.moving.left != left {
					t.Errorf("it has moved; %d may", l.moving.left)
				}
				l.moving.to = nil
			})
		})
	}
}

// TestMoveBeforeDrain: a connection that moves has its input before what its new loop does next.
func TestMoveBeforeDrain(t *testing.T) {
	e := start(t, Options{Loops: 2})
	holdMoves(t, e, 0, 0, 0)
	got := make(chan string, 10)
	addr, _ := movers(t, e, ListenOptions{}, func(m *mover) { m.data = func(b []byte) { got <- string(b) } })
	release := holdLoop(e.loops[1]) // so the first one accepts
	p := dial(t, addr)
	holdMovesOf(t, e.loops[0], 1, 1, e.loops[1])
	if _, err := p.Write([]byte("input")); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() (err error) {
		on(t, e.loops[0], func() {
			if e.loops[0].stats.Moved == 0 {
				err = errors.New("it has not moved")
			}
		})
		return err
	})
	next := make(chan string, 1)
	e.loops[1].Post(func() {
		select {
		case s := <-got:
			next <- s
		default:
			next <- "nothing"
		}
	})
	close(release)
	if s := recv(t, next, "the next function"); s != "input" {
		t.Errorf("it has %s", s)
	}
}

// TestMovePart: of the connections that have input a part moves, and no more than may. Each is asked once.
func TestMovePart(t *testing.T) {
	const conns = 12
	for _, c := range []struct {
		name string
		part float64
		room int
		want int32
	}{
		{"a quarter", 0.25, conns, conns / 4},
		{"all, but only five may", 1, 5, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := start(t, Options{Loops: 2})
			holdMoves(t, e, 0, 0, 0)
			addr, opened := movers(t, e, ListenOptions{}, nil)
			var first []net.Conn
			for len(first) < conns {
				p, before := dial(t, addr), opened[0].Load()
				if ask(t, p, "before"); opened[0].Load() > before {
					first = append(first, p)
				}
			}
			before := opened[1].Load()
			holdMoves(t, e, c.part, c.room, 1)
			for range 5 {
				for _, p := range first {
					ask(t, p, "after")
				}
			}
			if moved := opened[1].Load() - before; moved != c.want {
				t.Errorf("%d of %d moved, want %d", moved, conns, c.want)
			}
		})
	}
}

// TestGather: connections that have little to do come to share a loop by themselves.
func TestGather(t *testing.T) {
	for _, loops := range []int{2, 3} {
		t.Run(fmt.Sprint(loops, " loops"), func(t *testing.T) { gather(t, loops) })
	}
}

// gather is TestGather with a number of loops.
func gather(t *testing.T, loops int) {
	const conns = 8
	e := start(t, Options{Loops: loops})
	addr, _ := movers(t, e, ListenOptions{}, nil)
	peers := make([]net.Conn, conns)
	for i := range peers {
		peers[i] = dial(t, addr)
	}
	eventually(t, func() error {
		for _, p := range peers {
			ask(t, p, "hello")
		}
		var most, sum int
		for _, l := range e.loops {
			on(t, l, func() { most, sum = max(most, len(l.conns)), sum+len(l.conns) })
		}
		if most < conns || sum > conns {
			return fmt.Errorf("%d of %d connections on one loop", most, sum)
		}
		return nil
	})
}

// TestStopWhileMoving: the reactor's end closes connections that are on their way.
func TestStopWhileMoving(t *testing.T) {
	for range 20 {
		e := start(t, Options{Loops: 2})
		addr, _ := movers(t, e, ListenOptions{}, nil)
		p := dial(t, addr)
		ask(t, p, "before")
		for i, l := range e.loops {
			holdMovesOf(t, l, 1, math.MaxInt, e.loops[1-i])
		}
		asking := make(chan struct{})
		go func() {
			defer close(asking)
			b := make([]byte, 1)
			for {
				if _, err := p.Write(b); err != nil {
					return
				}
				if _, err := io.ReadFull(p, b); err != nil {
					return
				}
			}
		}()
		ctx := t.Context()
		if err := e.Stop(ctx); err != nil {
			t.Fatal(err)
		}
		recv(t, asking, "the connection's end")
		if n := e.Stats().Open; n != 0 {
			t.Fatalf("%d connections are open after the stop", n)
		}
	}
}

// BenchmarkMove measures an exchange on a connection that moves to the other loop with each request. BenchmarkOneLoop has
// the same exchange without the move.
func BenchmarkMove(b *testing.B) {
	e := start(b, Options{Loops: 2})
	l, err := e.Listen("127.0.0.1:0", ListenOptions{}, func(loop.Loop, string) loop.Receiver {
		m := &mover{}
		var conn loop.Conn
		m.open = func(c loop.Conn) { conn = c }
		m.data = func(b []byte) { conn.Write(b) }
		return m
	})
	if err != nil {
		b.Fatal(err)
	}
	for i, l := range e.loops {
		holdMovesOf(b, l, 1, math.MaxInt, e.loops[1-i])
	}
	roundTrips(b, l.Addr().String())
	moved := uint64(0)
	for _, l := range e.loops {
		on(b, l, func() { moved += l.stats.Moved })
	}
	b.ReportMetric(float64(moved)/float64(b.N), "moves/op")
}

// BenchmarkOtherLoop measures an exchange whose response comes from the other loop: it is posted there and back.
func BenchmarkOtherLoop(b *testing.B) {
	e := start(b, Options{Loops: 2})
	l, err := e.Listen("127.0.0.1:0", ListenOptions{}, func(at loop.Loop, _ string) loop.Receiver {
		var conn loop.Conn
		var in []byte
		there := e.loops[1-at.(*eventLoop).index]
		respond := func() { conn.Write(in) }
		pass := func() { at.Post(respond) }
		return &stream{
			open: func(c loop.Conn) { conn = c },
			data: func(b []byte) { in = append(in[:0], b...); there.Post(pass) },
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	roundTrips(b, l.Addr().String())
}

// roundTrips makes exchanges of 300 bytes with an echo, one at a time. It also reports the tenth percentile, which a busy
// machine changes least.
func roundTrips(b *testing.B, addr string) {
	p := newRawPeer(b, addr)
	out, in := make([]byte, 300), make([]byte, 300)
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		p.send(b, out)
		p.receive(b, in)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/10].Nanoseconds()), "ns-p10")
}

// BenchmarkOneLoop measures the exchange of BenchmarkMove and BenchmarkOtherLoop on one loop.
func BenchmarkOneLoop(b *testing.B) {
	e := start(b, Options{})
	roundTrips(b, listen(b, e, ListenOptions{}, echo))
}
