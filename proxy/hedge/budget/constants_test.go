package budget

import (
	"testing"

	"github.com/remora-proxy/remora/internal/modeltest"
)

// TestConstants shows what happens at half and at twice stuckReserve.
func TestConstants(t *testing.T) {
	modeltest.Check(t, "stuckReserve: more or fewer late requests get a hedge", &stuckReserve, hedgesOfLate, 1, -1)
	modeltest.Check(t, "stuckReserve: less or more is left to requests that are stuck then", &stuckReserve, hedgesOfStuck, -1, 1)
}

// take takes tokens until there is none for such a request. It returns their number.
func (b *Tokens) take(stuck bool) (n float64) {
	for ; b.Allows(0, stuck); n++ {
		b.Take(0)
	}
	return n
}

// hedgesOfLate returns how many late requests get a hedge of a full bucket.
func hedgesOfLate() float64 {
	b := New(40)
	return b.take(false)
}

// hedgesOfStuck returns how many stuck requests get a hedge after them.
func hedgesOfStuck() float64 {
	b := New(40)
	b.take(false)
	return b.take(true)
}
