package reactor

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

func TestDestination(t *testing.T) {
	of := func(shares ...float64) (loops []loopUse) {
		for _, s := range shares {
			loops = append(loops, loopUse{s, 100})
		}
		return loops
	}
	full := of(0.1, 0.1)
	full[0].connections = maxGathered - 3
	cases := []struct {
		name     string
		loops    []loopUse
		from     int
		to, move int
	}{
		{"one loop", of(0.99), 0, 0, 0},
		{"the first has little to do", of(0.1, 0.1), 0, 0, 0},
		{"the second has little to do", of(0.1, 0.1), 1, 0, 100},
		{"nothing to do", of(0, 0), 1, 0, 100},
		{"one does not suffice", of(0.4, 0.4), 1, 1, 0},
		{"two of four suffice", of(0.3, 0.2, 0.3, 0.3), 3, 1, 100},
		{"it is one of the two", of(0.3, 0.2, 0.3, 0.3), 1, 1, 0},
		{"no room", full, 1, 0, 3},
		{"too busy", of(1, 0), 0, 1, 50},
		{"too busy, as are others", of(0.95, 0.95, 0.45), 0, 2, 26},
		{"all are too busy", of(0.95, 0.9, 0.95), 0, 1, 0},
		{"busy enough", of(0.9, 0.3), 0, 0, 0},
		{"one connection does not move to and fro", []loopUse{{1, 1}, {0, 0}}, 0, 1, 0},
	}
	for _, c := range cases {
		to, move := destination(c.loops, c.from)
		if move != c.move || move > 0 && to != c.to {
			t.Errorf("%s: %d connections to loop %d, want %d to %d", c.name, move, to, c.move, c.to)
		}
	}
}

// TestUse: a loop that has no time to wait takes a processor, or less if others run on it. One without a
// turn takes none.
func TestUse(t *testing.T) {
	e := start(t, Options{Loops: 2})
	l := e.loops[0]
	var spin loop.Flush
	spinning := true
	spin.Do = func() {
		if spinning {
			l.Defer(&spin)
		}
	}
	on(t, l, func() { l.Defer(&spin) })
	eventually(t, func() error {
		if share := l.moving.use.of(time.Duration(l.moving.use.at.Load())); share <= 0 || share > 1.5 || math.IsNaN(share) {
			return fmt.Errorf("a loop that is always busy uses %v", share)
		}
		return nil
	})
	on(t, l, func() { spinning = false })
	if share := l.moving.use.of(time.Duration(l.moving.use.at.Load()) + staleUse + 1); share != 0 {
		t.Errorf("without a turn for %v it uses %v", staleUse, share)
	}
}

// mover is an echo whose connection may move.
type mover struct {
	stream
	on     loop.Loop
	stays  bool
	closed func(error)
}

func (m *mover) MayMove() bool { return !m.stays }

// movers listens for connections that may move, and counts their streams by loop.
func movers(t *testing.T, e *Engine, o ListenOptions, change func(*mover)) (addr string, opened []atomic.Int32) {
	opened = make([]atomic.Int32, len(e.loops))
	l, err := e.Listen("127.0.0.1:0", o, func(at loop.Loop, _ string) loop.Stream {
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

// holdMoves makes every loop move n connections to a loop, for as long as no window ends.
func holdMoves(t *testing.T, e *Engine, n, to int) {
	for _, l := range e.loops {
		on(t, l, func() {
			l.moving.use.since = math.MaxInt64 - time.Hour
			if l.moving.left = n; l.index == to {
				l.moving.left = 0
			}
			l.moving.to = e.loops[to]
		})
	}
}

// TestMove: connections move between two requests, lose nothing, and count as before.
func TestMove(t *testing.T) {
	const conns = 8
	e := start(t, Options{Loops: 2})
	closed := make(chan error, conns)
	addr, opened := movers(t, e, ListenOptions{}, func(m *mover) { m.stream.close = func(err error) { closed <- err } })
	peers := make([]net.Conn, conns)
	for i := range peers {
		peers[i] = dial(t, addr)
		ask(t, peers[i], "before")
	}
	elsewhere := int(opened[0].Load())
	holdMoves(t, e, conns, 1)
	before := e.Stats()
	for range 3 {
		for _, p := range peers {
			if got := ask(t, p, "after"); got != "after" {
				t.Errorf("echo %q", got)
			}
		}
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
	if l := [2]int64{e.loops[0].load.Load(), e.loops[1].load.Load()}; l != [2]int64{0, conns} {
		t.Errorf("connections of the loops: %d", l)
	}
	on(t, e.loops[0], func() {
		if s := e.loops[0].Stats(); s.Moved != uint64(elsewhere) || s.Connections != 0 {
			t.Errorf("loop 0 has %d connections, and moved %d, want %d", s.Connections, s.Moved, elsewhere)
		}
	})
	_ = peers[0].Close()
	if err := recv(t, closed, "the end"); !errors.Is(err, io.EOF) {
		t.Errorf("ended with %v", err)
	}
}

// TestNotMoved: what keeps a connection on its loop.
func TestNotMoved(t *testing.T) {
	own := NewIdentity(t)
	cases := []struct {
		name   string
		moves  int
		listen ListenOptions
		change func(*mover)
	}{
		{name: "the stream stays", moves: 1, change: func(m *mover) { m.stays = true }},
		{name: "no moves", moves: 0},
		{name: "TLS", moves: 1, listen: ListenOptions{TLS: own.Server}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			e := start(t, Options{Loops: 2})
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
			holdMoves(t, e, c.moves, 1-at)
			ask(t, p, "after")
			if opened[1-at].Load() != 0 || opened[at].Load() != 1 {
				t.Error("it moved")
			}
		})
	}
}

// TestGather: connections that have little to do come to share a loop by themselves.
func TestGather(t *testing.T) {
	const conns = 8
	e := start(t, Options{Loops: 3})
	addr, _ := movers(t, e, ListenOptions{}, nil)
	peers := make([]net.Conn, conns)
	for i := range peers {
		peers[i] = dial(t, addr)
	}
	eventually(t, func() error {
		for _, p := range peers {
			ask(t, p, "hello")
		}
		if n := e.loops[0].load.Load(); n < conns {
			return fmt.Errorf("%d of %d connections on the first loop", n, conns)
		}
		return nil
	})
}

// TestStopWhileMoving: the engine's end closes connections that are on their way.
func TestStopWhileMoving(t *testing.T) {
	for range 20 {
		e := start(t, Options{Loops: 2})
		addr, _ := movers(t, e, ListenOptions{}, nil)
		p := dial(t, addr)
		ask(t, p, "before")
		for i, l := range e.loops {
			on(t, l, func() {
				l.moving.use.since = math.MaxInt64 - time.Hour
				l.moving.left, l.moving.to = math.MaxInt, e.loops[1-i]
			})
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
