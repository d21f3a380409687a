package http

import (
	"testing"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/sim"
)

// TestTimersOfIncoming: only what the free list keeps has a timer after the request.
func TestTimersOfIncoming(t *testing.T) {
	const count = 1000
	w := sim.New(1)
	l := w.Loop("a")
	h := &host{Host: &downstream.Host{Shard: &shard.Shard{Loop: l}}}
	l.Do(func() {
		var all []*incoming
		for range count {
			in := h.newIncoming(nil)
			in.timeout.Start(loop.TimeoutHead, time.Second)
			all = append(all, in)
		}
		for _, in := range all {
			h.putIncoming(in)
		}
	})
	timers := 0
	w.OnTurn(func(_ *sim.Loop, ready, _ int) { timers += ready })
	w.Run(time.Minute)
	if kept := len(h.freeIncoming); timers != kept || kept == count {
		t.Errorf("%d timers have fired, of %d that were kept", timers, kept)
	}
}

// TestFreeCalls: arrays for many calls are not kept, since few clients need them. Arrays that are kept refer to no call, and the next
// call takes them.
func TestFreeCalls(t *testing.T) {
	for n, kept := range map[int]int{1: 1, maxFreeCalls: 1, maxFreeCalls + 1: 0, 5000: 0} {
		s := newSession(&host{Host: &downstream.Host{}}, nil)
		for range n {
			s.turn.add(call{ex: new(exchange.Exchange)})
		}
		for s.turn.remove() > 0 {
		}
		if got := len(s.host.freeCalls); got != kept || s.turn.calls != nil {
			t.Errorf("%d calls: %d arrays kept, want %d", n, got, kept)
		}
		for _, calls := range s.host.freeCalls {
			for _, c := range calls[:cap(calls)] {
				if c != (call{}) {
					t.Errorf("%d calls: one is kept", n)
				}
			}
		}
		if s.turn.add(call{}); len(s.host.freeCalls) != 0 {
			t.Errorf("%d calls: the array that was kept is not used again", n)
		}
	}
}

// TestBuffered: a session that waits for a request holds nothing, else it has what its calls and their responses hold. One
// that has ended has no calls, though its connection still sends.
func TestBuffered(t *testing.T) {
	s := newSession(&host{Host: &downstream.Host{Shard: &shard.Shard{}}}, nil)
	ex := new(exchange.Exchange)
	ex.Held = 100
	for _, c := range []struct {
		call call
		held int
	}{
		{call{}, 0},
		{call{ex: ex}, 100},
		{call{res: &race.Response{Held: 1000}}, 1000},
	} {
		if n := s.Buffered(); n != 0 {
			t.Errorf("%d bytes without a call", n)
		}
		s.turn.add(c.call)
		if n := s.Buffered(); n != c.held {
			t.Errorf("%d bytes, want %d", n, c.held)
		}
		s.turn.remove()
	}
	s.turn.add(call{})
	if s.turn.stop(); s.turn.waiting() != 0 {
		t.Error("a call is left behind the end")
	}
}

// TestOverShare: a request is over the share of its connection if the connection holds more than the share.
func TestOverShare(t *testing.T) {
	p := &shard.Process{}
	p.Budget.Configure(&config.Limits{Buffered: 1000, Message: 1000})
	s := newSession(&host{Host: &downstream.Host{Shard: &shard.Shard{Process: p}}}, nil)
	share := s.host.Share()
	for held, over := range map[int]bool{0: false, share: false, share + 1: true} {
		s.turn.add(call{res: &race.Response{Held: held}})
		if got := s.turn.OverShare(nil); got != over {
			t.Errorf("%d bytes of %d: over %t", held, share, got)
		}
		s.turn.remove()
	}
}

// TestLeave: a session may move when it has shown that it lasts, and nothing is left to do.
func TestLeave(t *testing.T) {
	ready := func() *session {
		s := newSession(&host{Host: &downstream.Host{Shard: &shard.Shard{}}}, nil)
		s.MoveIn(leastMoved)
		return s
	}
	if n, ok := ready().MoveOut(); n != leastMoved || !ok {
		t.Errorf("a session with %d requests that waits for the next one: %d, %v", leastMoved, n, ok)
	}
	for name, change := range map[string]func(s *session){
		"few requests":        func(s *session) { s.MoveIn(leastMoved - 1) },
		"a request in flight": func(s *session) { s.turn.calls, s.turn.state = []call{{}}, turnBusy },
		"part of a head": func(s *session) {
			s.input.buffer, s.incoming = &bytebufferpool.ByteBuffer{B: []byte("G")}, &incoming{}
		},
		"part of a body":    func(s *session) { s.incoming, s.input.state = &incoming{ex: &exchange.Exchange{}}, inputBody },
		"a tunnel":          func(s *session) { s.tunnel.connect = &connect{} },
		"its last response": func(s *session) { s.Retire() },
		"its end":           func(s *session) { s.turn.state = turnClosed },
	} {
		s := ready()
		change(s)
		if _, ok := s.MoveOut(); ok {
			t.Errorf("%s: it may move", name)
		}
	}
}
