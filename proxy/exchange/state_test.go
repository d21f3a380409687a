package exchange

import (
	"testing"

	"github.com/remora-proxy/remora/internal/statetest"
)

// TestExchangeTransitions: a caller gets one response, or cancels, and not both. After that
// the exchange only waits for its last attempt.
func TestExchangeTransitions(t *testing.T) {
	statetest.Check(t, (*exchangeState).become, map[exchangeState][]exchangeState{
		exchangeIdle:      {exchangeOpen},
		exchangeOpen:      {exchangeAnswered, exchangeCancelled},
		exchangeAnswered:  {exchangeIdle},
		exchangeCancelled: {exchangeIdle},
	})
}
