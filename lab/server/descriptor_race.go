//go:build race

package server

import "sync/atomic"

// numbers is how many connections come before one may get the number of a closed descriptor again.
const numbers = 256

var opened atomic.Uint32

// leastDescriptor spreads the numbers. With the race detector netpoll knows a connection by the
// number of its descriptor (poll_default_linux_race.go of v0.7.2): a late event of a closed
// connection would end the next one with this number.
func leastDescriptor() int { return numbers + int(opened.Add(1)%numbers) }
