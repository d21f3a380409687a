// Package statetest compares the transitions of a state machine with a list that a test
// writes out. The test takes the list from the meaning of the states and not from the
// machine's own table, so that a wrong line of the table shows.
package statetest

import (
	"fmt"
	"slices"
	"testing"
)

// state is the state of a machine. The constants count up from 0, and each has a name.
type state interface {
	~uint8
	fmt.Stringer
}

// Check fails t unless become accepts exactly the transitions in legal, and panics on all
// others. legal has the states that may follow each state; its keys are all states.
func Check[S state](t *testing.T, become func(s *S, next S), legal map[S][]S) {
	t.Helper()
	if n := count[S](); n != len(legal) {
		t.Fatalf("the machine has %d states, the test %d", n, len(legal))
	}
	for from := range S(len(legal)) {
		for to := range S(len(legal)) {
			if got, want := accepts(become, from, to), slices.Contains(legal[from], to); got != want {
				t.Errorf("%s → %s: accepted %t, want %t", from, to, got, want)
			}
		}
	}
}

// count returns the number of states: those that have a name. It is 256 if String has a
// name for every value.
func count[S state]() (n int) {
	defer func() { recover() }()
	for n < 256 && S(n).String() != "" {
		n++
	}
	return n
}

// accepts reports whether become changes the state, and does not panic.
func accepts[S comparable](become func(s *S, next S), from, to S) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	state := from
	become(&state, to)
	return state == to
}
