// Package log2 approximates binary logarithms. Averages of latencies are made of their logarithms, so
// that a latency of twice the mean weighs as much as one of half of it.
//
// The approximation is the exponent and the mantissa of the floating-point number: exact for powers of
// 2, linear in between, at most 0.086 too low (Mitchell, "Computer Multiplication and Division Using
// Binary Logarithms", 1962). It needs neither a division nor a table.
package log2

import (
	"math"
	"time"
)

const (
	mantissa = 1 << 52
	bias     = 1023
)

// Of returns the binary logarithm of a latency in nanoseconds.
func Of(d time.Duration) float64 {
	return float64(math.Float64bits(float64(d)))/mantissa - bias
}

// Exp is the inverse of Of, as a float64.
func Exp(x float64) float64 { return math.Float64frombits(uint64((x + bias) * mantissa)) }
