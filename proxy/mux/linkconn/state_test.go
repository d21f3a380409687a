package linkconn

import (
	"testing"

	"github.com/remora-proxy/remora/internal/statetest"
)

// TestTransitions: without the peer's preface there is nothing to drain. A link that drains
// may get another GOAWAY, and never opens again. Any state may be the last.
func TestTransitions(t *testing.T) {
	statetest.Check(t, (*State).become, map[State][]State{
		Opening:  {Open, Closed},
		Open:     {Draining, Closed},
		Draining: {Draining, Closed},
		Closed:   {},
	})
}
