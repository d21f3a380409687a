// Package draw draws numbers for what a route leaves to chance. A sequence takes four bytes, and a number a few instructions.
package draw

// Numbers is a sequence of numbers, as xorshift with 32 bits draws them (Marsaglia, "Xorshift RNGs", 2003). All numbers but 0 come
// before one comes again. Any of them may be the first.
type Numbers uint32

// Next draws the next number.
func (n *Numbers) Next() uint32 {
	*n ^= *n << 13
	*n ^= *n >> 17
	*n ^= *n << 5
	return uint32(*n)
}
