package http

import (
	"testing"

	"github.com/remora-proxy/remora/internal/statetest"
)

// TestTransitions: a connection that was dialled carries one request after the other. Each
// response has a head, and perhaps a body. Any state may be the last.
func TestTransitions(t *testing.T) {
	statetest.Check(t, (*connState).become, map[connState][]connState{
		dialing:      {idle, closed},
		idle:         {awaitingHead, closed},
		awaitingHead: {idle, awaitingBody, closed},
		awaitingBody: {idle, closed},
		closed:       {},
	})
}
