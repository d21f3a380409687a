package sim

import "bytes"

// poisoned is what OnData's slice holds after the callback.
var poisoned = bytes.Repeat([]byte{0xDB}, 64<<10)

// buffer returns n bytes that OnData may see, with no capacity beyond. They are
// the world's, poisoned after the callback.
func (w *World) buffer(n int) []byte {
	if cap(w.scratch) < n {
		w.scratch = make([]byte, max(n, w.Options.ReadSize))
	}
	return w.scratch[:n:n]
}

// poison overwrites b, so that a slice kept past its time is noticed.
func poison(b []byte) {
	for len(b) > 0 {
		b = b[copy(b, poisoned):]
	}
}
