package sim

import "bytes"

// poisoned is what OnData's slice holds after the callback.
var poisoned = bytes.Repeat([]byte{0xDB}, 64<<10)

// inputBuffer is the memory of OnData's slices.
type inputBuffer struct{ b []byte }

// take returns n bytes for one OnData, without further capacity. The caller poisons them after
// the callback.
func (i *inputBuffer) take(n int) []byte {
	if cap(i.b) < n {
		i.b = make([]byte, max(n, len(poisoned)))
	}
	return i.b[:n:n]
}

// poison overwrites b, so that a later use of the slice fails.
func poison(b []byte) {
	for len(b) > 0 {
		b = b[copy(b, poisoned):]
	}
}
