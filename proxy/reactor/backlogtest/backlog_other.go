//go:build !linux

package backlogtest

import "testing"

// Await does nothing: only Linux says how many connections wait at a listening socket.
func Await(testing.TB, int, int) {}
