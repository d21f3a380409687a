package dubbo

import (
	"testing"

	"github.com/remora-proxy/remora/internal/statetest"
)

// TestTransitions: a session refuses calls only after the grace for those on their way, and
// takes none again. Any state may be the last.
func TestTransitions(t *testing.T) {
	statetest.Check(t, (*sessionState).become, map[sessionState][]sessionState{
		open:     {grace, closed},
		grace:    {draining, closed},
		draining: {closed},
		closed:   {},
	})
}
