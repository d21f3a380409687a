package exchange

import "testing"

// Only the changes of the tables are legal.
func TestIllegalStatesPanic(t *testing.T) {
	panics := func(f func()) (panicked bool) {
		defer func() { panicked = recover() != nil }()
		f()
		return false
	}
	for from := exchangeIdle; from <= exchangeCancelled; from++ {
		for to := exchangeIdle; to <= exchangeCancelled; to++ {
			ex := &Exchange{state: from}
			if legal := exchangeEdges[from]&(1<<to) != 0; panics(func() { ex.become(to) }) == legal {
				t.Errorf("exchange from %d to %d: legal is %t", from, to, legal)
			}
		}
	}
	for from := attemptIdle; from <= attemptLingering; from++ {
		for to := attemptIdle; to <= attemptLingering; to++ {
			a := &Attempt{state: from}
			if legal := attemptEdges[from]&(1<<to) != 0; panics(func() { a.become(to) }) == legal {
				t.Errorf("attempt from %d to %d: legal is %t", from, to, legal)
			}
		}
	}
}
