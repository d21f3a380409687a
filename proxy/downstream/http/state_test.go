package http

import "testing"

// TestClosedIsFinal checks that no transition leaves a closed state: become panics.
func TestClosedIsFinal(t *testing.T) {
	panics := func(name string, f func()) {
		defer func() {
			if recover() == nil {
				t.Errorf("a closed %s is not final", name)
			}
		}()
		f()
	}
	for next := inputHead; next < inputClosed; next++ {
		s := inputClosed
		panics("input became "+next.String()+": it", func() { s.become(next) })
	}
	for next := outputIdle; next <= outputClosed; next++ {
		s := outputClosed
		panics("output became "+next.String()+": it", func() { s.become(next) })
	}
}
