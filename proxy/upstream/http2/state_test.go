package http2

import (
	"testing"

	"github.com/remora-proxy/remora/internal/statetest"
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
