package http2

import (
	"testing"

	"github.com/remora-proxy/remora/internal/statetest"
)

// TestSessionTransitions: a session that drains takes no way back.
func TestSessionTransitions(t *testing.T) {
	statetest.Check(t, (*sessionState).become, map[sessionState][]sessionState{
		open:     {draining, closed},
		draining: {closed},
		closed:   {},
	})
}
