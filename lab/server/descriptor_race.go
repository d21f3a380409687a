//go:build race

package server

import "sync"

// firstNumber is above the descriptors of most tests.
const firstNumber = 256

var numbers = struct {
	sync.Mutex
	next int
}{next: firstNumber}

// renumbered returns the descriptor of dup, which takes the least number that the descriptor may
// have. Numbers rise up to the limit of the process, and then begin again: a closed descriptor's
// number comes late. With the race detector netpoll knows a connection by the number of its
// descriptor (poll_default_linux_race.go of v0.7.2): a late event of a closed connection would end
// the next one with this number.
func renumbered(dup func(least int) (fd int, err error)) (fd int, err error) {
	numbers.Lock()
	defer numbers.Unlock()
	if fd, err = dup(numbers.next); err != nil {
		fd, err = dup(firstNumber)
	}
	numbers.next = fd + 1
	return fd, err
}
