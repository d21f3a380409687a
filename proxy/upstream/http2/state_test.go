package http2

import (
	"testing"

	"github.com/remora-proxy/remora/internal/statetest"
	"github.com/remora-proxy/remora/proxy/race"
)

// TestFreeCalls: calls that are over are kept for requests to come, but not more than maxFree.
func TestFreeCalls(t *testing.T) {
	var f freeCalls
	for range maxFree + 10 {
		f.put(new(call))
	}
	if len(f.list) != maxFree {
		t.Errorf("%d calls are kept, want %d", len(f.list), maxFree)
	}
}

// TestWithdrawnForgets: what is known of calls that lingered until their deadline does not add up, if
// the endpoint answers no barrier.
func TestWithdrawnForgets(t *testing.T) {
	w := withdrawn{waiting: true}
	for range 100 {
		s := &call{}
		w.add(nil, s)
		w.remove(s)
	}
	if len(w.later) > 0 {
		t.Errorf("%d calls are left", len(w.later))
	}
}

// TestWithdrawnAfterDeadline: a call that lingered until its deadline is not ended again by the late answer to the barrier.
func TestWithdrawnAfterDeadline(t *testing.T) {
	s := &call{}
	w := withdrawn{waiting: true, covered: []*call{s}}
	w.remove(s)
	w.onAnswer(nil)
	if w.waiting || len(w.covered) > 0 {
		t.Errorf("it waits for an answer: %t, for %d calls", w.waiting, len(w.covered))
	}
}

// TestTransitions: a connection that was dialled opens with the endpoint's SETTINGS, and takes no
// more requests once it drains. Any state may be the last.
func TestTransitions(t *testing.T) {
	statetest.Check(t, (*connState).become, map[connState][]connState{
		dialing:  {greeting, closed},
		greeting: {open, closed},
		open:     {draining, closed},
		draining: {closed},
		closed:   {},
	})
}

// TestLargest: a connection counts among those that hold memory until it closes, also while it drains.
func TestLargest(t *testing.T) {
	holds := func(n int) *call { return &call{response: &race.Response{Held: n}} }
	p, c := &pool{}, &conn{calls: []*call{holds(40), {}, holds(60)}}
	p.conns = append(p.conns, c, &conn{calls: []*call{holds(30)}}, &conn{})
	for _, step := range []struct {
		name string
		do   func()
		want int
		each int // for each request
	}{
		{"open", func() {}, 100, 33},
		{"draining", func() { p.drain(c) }, 100, 33},
		{"closed", func() { p.remove(c) }, 30, 30},
		{"all closed", func() { p.remove(p.conns[0]) }, 0, 0},
	} {
		step.do()
		if held, each, h := p.Largest(); held != step.want || each != step.each || (h != nil) != (held > 0) || (h == c) != (held == 100) {
			t.Errorf("%s: %d bytes, %d for each request, holder %v", step.name, held, each, h)
		}
	}
}

// TestPartialForgets: the list of responses that have grown does not keep responses that are over.
func TestPartialForgets(t *testing.T) {
	var p partial
	for range 100 {
		s := &call{}
		p.add(s)
		p.remove(s)
		p.check()
	}
	if len(p.calls) > 0 {
		t.Errorf("%d calls are left", len(p.calls))
	}
}
