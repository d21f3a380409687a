package budget

import "testing"

// A late request leaves exactly a quarter of the bucket to stuck ones. A full
// bucket has a token for either, however small it is.
func TestStuckReserve(t *testing.T) {
	for _, c := range []struct {
		burst, tokens float64
		late, stuck   bool
	}{
		{8, 3, true, true},
		{8, 2.99, false, true},
		{8, 1, false, true},
		{8, 0.99, false, false},
		{1.2, 1.2, true, true},
		{1.2, 1.19, false, true},
		{1, 1, true, true},
		{1, 0.99, false, false},
	} {
		b := New(c.burst)
		b.tokens = c.tokens
		if late, stuck := b.Allows(0, false), b.Allows(0, true); late != c.late || stuck != c.stuck {
			t.Errorf("%v of %v tokens: %t for a late request, %t for a stuck one", c.tokens, c.burst, late, stuck)
		}
	}
}
