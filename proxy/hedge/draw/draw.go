// Package draw draws numbers for what a route leaves to chance. A sequence takes four bytes, and a number a few instructions.
package draw

// Numbers is a sequence of numbers, as xorshift with 32 bits draws them (Marsaglia, "Xorshift RNGs", 2003). It has each number but 0
// once before it repeats. It may begin with any number but 0: the zero value draws 0 for ever.
type Numbers uint32

// Next draws the next number.
func (n *Numbers) Next() uint32 {
	*n ^= *n << 13
	*n ^= *n >> 17
	*n ^= *n << 5
	return uint32(*n)
}
