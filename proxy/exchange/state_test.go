package exchange

import "testing"

// TestIllegalStatesPanic: become panics unless the table of transitions has the change.
func TestIllegalStatesPanic(t *testing.T) {
	panics := func(f func()) (panicked bool) {
		defer func() { panicked = recover() != nil }()
		f()
		return false
	}
	for from := range exchangeState(exchangeStates) {
		for to := range exchangeState(exchangeStates) {
			state := from
			if legal := exchangeEdges[from][to]; panics(func() { state.become(to) }) == legal {
				t.Errorf("exchange from %d to %d: legal is %t", from, to, legal)
			}
		}
	}
	for from := range attemptState(attemptStates) {
		for to := range attemptState(attemptStates) {
			state := from
			if legal := attemptEdges[from][to]; panics(func() { state.become(to) }) == legal {
				t.Errorf("attempt from %d to %d: legal is %t", from, to, legal)
			}
		}
	}
}
