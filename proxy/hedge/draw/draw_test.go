package draw

import "testing"

// TestNext: the numbers are those of the generator that is named, whose sequence is known to be long and even.
func TestNext(t *testing.T) {
	n := Numbers(1)
	for i, want := range []uint32{270369, 67634689, 2647435461, 307599695, 2398689233} {
		if got := n.Next(); got != want {
			t.Errorf("number %d is %d, want %d", i, got, want)
		}
	}
}
