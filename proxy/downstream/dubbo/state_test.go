package dubbo

import "testing"

// TestClosedIsFinal checks that no transition leaves closed: become panics.
func TestClosedIsFinal(t *testing.T) {
	for next := open; next <= closed; next++ {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a closed session became %s", next)
				}
			}()
			s := closed
			s.become(next)
		}()
	}
}
