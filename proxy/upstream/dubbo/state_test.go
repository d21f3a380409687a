package dubbo

import (
	"testing"

	"github.com/remora-proxy/remora/internal/statetest"
)

// TestTransitions: a connection is probed only when it opens, and only a response to the
// heartbeat ends that. A provider that has said that it leaves takes no more calls on this
// connection. Any state may be the last.
func TestTransitions(t *testing.T) {
	statetest.Check(t, (*clientState).become, map[clientState][]clientState{
		dialing:        {open, probing, closed},
		probing:        {open, probingLeaving, closed},
		probingLeaving: {leaving, closed},
		open:           {leaving, closed},
		leaving:        {closed},
		closed:         {},
	})
}
