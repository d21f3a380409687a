package reactor

import "testing"

// TestStates: the state of a connection, and that of a newcomer, only move down their lists: become panics else.
func TestStates(t *testing.T) {
	panics := func(f func()) (is bool) {
		defer func() { is = recover() != nil }()
		f()
		return false
	}
	for from := connDialing; from <= connClosed; from++ {
		for to := connDialing; to <= connClosed; to++ {
			if got := panics(func() { (&conn{state: from}).become(to) }); got != (to <= from) {
				t.Errorf("a connection from %d to %d: panics %t", from, to, got)
			}
		}
	}
	for from := newcomerWaiting; from <= newcomerLeft; from++ {
		for to := newcomerWaiting; to <= newcomerLeft; to++ {
			if got := panics(func() { (&newcomer{state: from}).become(to) }); got != (to <= from) {
				t.Errorf("a newcomer from %d to %d: panics %t", from, to, got)
			}
		}
	}
}
