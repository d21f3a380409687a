package proxy

import (
	"bytes"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
)

const (
	// maxKept is how many bytes of buffers that are not in use a loop keeps at most
	// for the next long messages. All loops together never keep more than a share of
	// limits.buffered, one in keptShare, and do not count it there.
	maxKept   = 16 << 20
	keptShare = 8

	// keptFor is how long a loop keeps what it does not use: so long at least, and
	// at most twice.
	keptFor = time.Second
)

// initBuffers sees to it that what is kept is let go of at rest.
func (w *Worker) initBuffers() {
	w.buffers.OnKept = func() { w.loop.After(keptFor, &w.trimmer) }
	w.trimmer.Fire = func() {
		if w.buffers.Trim() {
			w.loop.After(keptFor, &w.trimmer)
		}
	}
}

// boundBuffers sets how much is kept, by the limits and the number of loops.
func (w *Worker) boundBuffers() {
	share := w.cfg.Limits.Buffered / keptShare / int64(max(len(w.proc.workers), 1))
	w.buffers.Most = int(min(maxKept, share))
}

// buffersOfNone are for what has left its loop.
var buffersOfNone *protocol.Buffers

// longRead is what a connection may bring at once that is kept in one buffer. Of
// more, what is behind a head is decoded from where it was read to.
const longRead = 16<<10 + 1<<10

// splitHead splits what a connection has brought where a head is to be expected: of
// much, behind what looks like the end of the head.
func splitHead(b []byte) (head, rest []byte) {
	if len(b) <= longRead {
		return b, nil
	}
	i := bytes.Index(b, []byte("\r\n\r\n"))
	if i < 0 {
		return b, nil
	}
	return b[:i+4], b[i+4:]
}

// bodyRoom makes room in buf, the body announced by h so far, for what b has of it.
func (w *Worker) bodyRoom(buf *bytebufferpool.ByteBuffer, h *http1.Head, b []byte) {
	n, total := len(b), 0
	if h.Framing == http1.FixedLength && h.Length <= http1.NoLimit {
		total = int(h.Length)
		n = min(n, total-len(buf.B))
	}
	w.buffers.Reserve(buf, n, total)
}
