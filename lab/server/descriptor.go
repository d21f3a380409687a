//go:build !race

package server

// renumbered returns the descriptor of dup, which takes the least number that the descriptor may
// have.
func renumbered(dup func(least int) (fd int, err error)) (fd int, err error) { return dup(0) }
