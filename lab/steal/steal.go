// Package steal finds the moments in which a processor of this machine stood
// still: the host of a virtual machine gave its time to somebody else (what top
// calls steal), or the kernel kept it to itself. Latency measured across such a
// moment says little about the programs that were measured.
package steal

import "time"

// Stop is a time in which a processor ran no program, not even one that goes
// before all others.
type Stop struct {
	CPU  int       `json:"cpu"`
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// Least is the shortest Stop that is told of. From Least + 2 ms on, each one is.
const Least = time.Millisecond
