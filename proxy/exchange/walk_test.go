package exchange

import "testing"

// TestWalkSkip: no filter sees an outcome after skip, whether the way out has begun before or not.
func TestWalkSkip(t *testing.T) {
	for name, w := range map[string]walk{
		"on the way in":  {inside: 2},
		"on the way out": {inside: 2, turned: true, outside: 2},
	} {
		if w.skip(new(Exchange)); !w.turned || w.outside != 0 {
			t.Errorf("%s: turned %t, %d filters would see the outcome", name, w.turned, w.outside)
		}
	}
}
