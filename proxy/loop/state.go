package loop

import "fmt"

// IllegalState is called for a state machine that can't go from one state to another. That
// is a fault of this program: it panics, and the driver closes the connection whose event
// caused it. It is never inlined, so that its callers are.
//
//go:noinline
func IllegalState(from, to fmt.Stringer) {
	panic(fmt.Sprintf("%T can't go from %s to %s", from, from, to))
}
