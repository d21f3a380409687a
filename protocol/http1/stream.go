package http1

import (
	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
)

// AppendStreamRequest appends the head of req, decoded as h, for a body that
// follows as it comes: with its Content-Length if h says so, else in chunks. An
// Expect: 100-continue stays, for the next hop to answer, and the connection is
// to close after the response. It appends nothing when ValidRequest refuses req.
func AppendStreamRequest(dst []byte, req *protocol.Request, h *Head) []byte {
	n := len(dst)
	if dst = appendRequestFields(dst, req); len(dst) == n {
		return dst
	}
	dst = appendFraming(dst, h)
	if h.ExpectContinue {
		dst = append(dst, "Expect: 100-continue\r\n"...)
	}
	return append(append(dst, closeField...), '\r', '\n')
}

// AppendStreamResponse appends the head of resp for a body that follows as it
// comes, framed as h says: FixedLength with its Content-Length, else in chunks,
// or, for an HTTP/1.0 client (minor 0), until the close that ends it anyway. It
// appends nothing when ValidResponse refuses resp.
func AppendStreamResponse(dst []byte, resp *protocol.Response, h *Head, minor int) []byte {
	n := len(dst)
	if dst = appendResponseFields(dst, resp); len(dst) == n {
		return dst
	}
	if h.Framing == FixedLength || minor >= 1 {
		dst = appendFraming(dst, h)
	}
	return append(append(dst, closeField...), '\r', '\n')
}

func appendFraming(dst []byte, h *Head) []byte {
	switch h.Framing {
	case NoBody:
		return dst
	case FixedLength:
		return appendLength(dst, h.Length)
	}
	return append(dst, chunkedField...)
}

// NoLimit as Limits.Message is for bodies that are passed on as they come.
const NoLimit = 1 << 62

// Discard removes from dst the bytes of the body that it holds, once they were
// passed on, so that a body of any length passes through a small buffer. What
// dst holds of a trailer section stays.
func (d *Body) Discard(dst *bytebufferpool.ByteBuffer) {
	n := copy(dst.B, dst.B[d.length:])
	dst.B = dst.B[:n]
	d.line -= d.length
	d.discarded += int64(d.length)
	d.length = 0
}

// Verbatim tells how many of the bytes to come are the body's as they are, so
// that they can be copied without Decode: all that is left of a FixedLength body,
// NoLimit of one until the close, 0 of others.
func (d *Body) Verbatim() int64 {
	switch {
	case d.state != bodyBytes:
		return 0
	case d.framing == FixedLength:
		return d.left
	}
	return NoLimit
}

// Skip counts n of Verbatim bytes as passed on.
func (d *Body) Skip(n int64) {
	d.discarded += n
	if d.framing == FixedLength {
		if d.left -= n; d.left == 0 {
			d.state = bodyDone
		}
	}
}
