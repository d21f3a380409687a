package sim

import "bytes"

// poisoned is what OnData's slice holds after the callback.
var poisoned = bytes.Repeat([]byte{0xDB}, 64<<10)

// buffer returns n bytes for OnData, without further capacity. The world owns them, and
// poisons them after the callback.
func (w *World) buffer(n int) []byte {
	if cap(w.scratch) < n {
		w.scratch = make([]byte, max(n, w.Options.ReadSize))
	}
	return w.scratch[:n:n]
}

// poison overwrites b, so that a later use of the slice fails.
func poison(b []byte) {
	for len(b) > 0 {
		b = b[copy(b, poisoned):]
	}
}
