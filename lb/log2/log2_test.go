package log2

import (
	"math"
	"testing"
	"time"
)

// TestError: the approximation is at most 0.086 too low, and Exp is its inverse.
func TestError(t *testing.T) {
	for d := time.Duration(1); d < time.Hour; d += d/97 + 1 {
		x, exact := Of(d), math.Log2(float64(d))
		if x > exact+1e-9 || x < exact-0.0861 {
			t.Errorf("the logarithm of %d is %v, want %v", d, x, exact)
		}
		if back := Exp(x); math.Abs(back/float64(d)-1) > 1e-9 {
			t.Errorf("the inverse of the logarithm of %d is %v", d, back)
		}
	}
}
