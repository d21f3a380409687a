package linkconn

import "testing"

// TestClosedIsFinal checks that no transition leaves Closed: become panics.
func TestClosedIsFinal(t *testing.T) {
	for next := Opening; next <= Closed; next++ {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a closed link became %s", next)
				}
			}()
			s := Closed
			s.become(next)
		}()
	}
}
