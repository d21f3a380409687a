package http

import "testing"

// TestClosedIsFinal checks that no transition leaves closed: become panics.
func TestClosedIsFinal(t *testing.T) {
	for next := dialing; next <= closed; next++ {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a closed connection became %s", next)
				}
			}()
			s := closed
			s.become(next)
		}()
	}
}
