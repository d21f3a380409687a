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

// TestCallTransitions: a request leaves the loop, or gets its response, once.
func TestCallTransitions(t *testing.T) {
	statetest.Check(t, (*callState).become, map[callState][]callState{
		receiving:  {processing, streaming, sending},
		processing: {streaming, sending},
		streaming:  {sending},
		sending:    {},
	})
}
