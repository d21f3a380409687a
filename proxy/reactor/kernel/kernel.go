// Package kernel has the system calls of sockets, which differ between operating systems, and the interface of a Poller,
// which waits for sockets. Packages epoll and gnet implement that. What only Linux has is an error elsewhere. The tests run
// on Linux alone: for others it is only known that the program builds.
package kernel

import "errors"

// ErrLinuxOnly is the error of what only Linux has.
var ErrLinuxOnly = errors.New("needs Linux")

// Counters are the kernel's, of one TCP connection.
type Counters struct {
	Received, Acknowledged uint64 // bytes since the connection was made
	Closed                 bool   // reports whether only the descriptor is left
}
