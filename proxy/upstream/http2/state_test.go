package http2

import (
	"testing"

	"github.com/remora-proxy/remora/internal/statetest"
	"github.com/remora-proxy/remora/proxy/race"
)

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
	p, c := &pool{}, &conn{calls: []*call{{response: &race.Response{Held: 100}}}}
	p.conns = append(p.conns, c)
	for _, step := range []struct {
		name string
		do   func()
		want int
	}{
		{"open", func() {}, 100},
		{"draining", func() { p.drain(c) }, 100},
		{"closed", func() { p.remove(c) }, 0},
	} {
		step.do()
		if held, _, h := p.Largest(); held != step.want || (h != nil) != (held > 0) {
			t.Errorf("%s: %d bytes, holder %v", step.name, held, h)
		}
	}
}
