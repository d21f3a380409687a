package http2

import (
	"testing"

	"github.com/remora-proxy/remora/internal/statetest"
)

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
