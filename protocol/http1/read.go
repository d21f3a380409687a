package http1

import (
	"bytes"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
)

// longRead is the longest read of a connection that goes into one buffer whole. Of a longer
// one, what follows the head is decoded where it was read to.
const longRead = 16<<10 + 1<<10

// WriteTogether is the size up to which a body is copied behind its head, for a single write.
const WriteTogether = 16 << 10

// SplitHead splits what a connection has read where a head may begin: a long read is cut
// behind what looks like the end of the head. Both parts alias b.
func SplitHead(b []byte) (head, rest []byte) {
	if len(b) <= longRead {
		return b, nil
	}
	i := bytes.Index(b, []byte("\r\n\r\n"))
	if i < 0 {
		return b, nil
	}
	return b[:i+4], b[i+4:]
}

// ReserveBody makes room in buf, which holds the body that h announces as far as it was read,
// for the part of it that b has.
func ReserveBody(buffers *protocol.Buffers, buf *bytebufferpool.ByteBuffer, h *Head, b []byte) {
	n, total := len(b), 0
	if h.Framing == FixedLength && h.Length <= protocol.NoLimit {
		total = int(h.Length)
		n = min(n, total-len(buf.B))
	}
	buffers.Reserve(buf, n, total)
}
