package downstream

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestNewRequestID checks that an id has the digits of two random numbers, the lowest digit of
// each first.
func TestNewRequestID(t *testing.T) {
	made, same := rand.NewPCG(1, 2), rand.NewPCG(1, 2)
	for range 1000 {
		var want []byte
		for range 2 {
			digits := fmt.Appendf(nil, "%016x", same.Uint64())
			slices.Reverse(digits)
			want = append(want, digits...)
		}
		var buf [32]byte
		if got := newRequestID(made, &buf); string(got) != string(want) {
			t.Fatalf("%s, want %s", got, want)
		}
	}
}
