package replica

import (
	"sync"

	"github.com/remora-proxy/remora/lab/server"
)

// maxUnsent bounds the responses, in bytes, to a client that does not read them.
const maxUnsent = 64 << 20

// writer is the output of a connection whose workers write concurrently.
type writer struct {
	*server.Conn

	mu      sync.Mutex
	out     []byte // responses that the client does not have yet
	writing bool   // a goroutine writes, and will look at out again
	sent    []byte // memory of earlier responses
}

// send sends responses, or leaves them to the goroutine that writes already. It reports
// whether the connection is still open, as far as is known.
func (w *writer) send(responses []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out = append(w.out, responses...)
	return w.flush()
}

// flush does so with w.out. The caller holds the lock, which flush gives up meanwhile.
func (w *writer) flush() bool {
	if w.writing {
		return len(w.out) <= maxUnsent
	}
	w.writing = true
	defer func() { w.writing = false }()
	for len(w.out) > 0 {
		b := w.out
		w.out = w.sent[:0]
		w.mu.Unlock()
		open := w.Write(b)
		w.mu.Lock()
		w.sent = b
		if !open {
			return false
		}
	}
	return true
}
