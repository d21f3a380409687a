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
	switch {
	case h.Framing != NoBody:
		dst = appendFraming(dst, h)
	case definesContent(req.Method):
		dst = appendLength(dst, 0)
	}
	if h.ExpectContinue {
		dst = append(dst, "Expect: 100-continue\r\n"...)
	}
	return append(append(dst, closeField...), '\r', '\n')
}

// AppendStreamResponse appends the head of resp for a body that follows as it
// comes, framed as h says: FixedLength with its Content-Length, else in chunks,
// or, for an HTTP/1.0 client (minor 0), until the close that ends it anyway.
// With NoBody it says what a 304, or the answer to a HEAD, declares. It appends
// nothing when ValidResponse refuses resp, or when h announces a body that the
// client would not expect with that status.
func AppendStreamResponse(dst []byte, resp *protocol.Response, h *Head, minor int) []byte {
	if h.Framing != NoBody && !HasBody(resp, ResponseFlags{}) {
		return dst
	}
	n := len(dst)
	if dst = appendResponseFields(dst, resp); len(dst) == n {
		return dst
	}
	switch {
	case h.Framing == NoBody:
		if resp.Status != 204 && resp.DeclaredLength >= 0 {
			dst = appendLength(dst, resp.DeclaredLength)
		}
	case h.Framing == FixedLength || minor >= 1:
		dst = appendFraming(dst, h)
	}
	return append(append(dst, closeField...), '\r', '\n')
}

// MaxInterim is how many interim responses to one request are taken. More are no
// word of an application, and nothing else would end them.
const MaxInterim = 32

// AppendInterim appends an interim response (1xx, but no 101), to be passed on
// to an HTTP/1.1 client before the response itself, or nothing when it can't be
// sent safely.
func AppendInterim(dst []byte, resp *protocol.Response) []byte {
	if resp.Status < 100 || resp.Status > 199 || resp.Status == 101 ||
		textEnd(resp.Reason, 0) != len(resp.Reason) || !headersValid(resp.Headers) {
		return dst
	}
	dst = appendStatusLine(dst, resp.Status, resp.Reason)
	for i := range resp.Headers {
		if kindOf(resp.Headers[i].Name) == endToEnd {
			dst = appendHeader(dst, &resp.Headers[i])
		}
	}
	return append(dst, '\r', '\n')
}

// appendFraming announces the body of h.
func appendFraming(dst []byte, h *Head) []byte {
	if h.Framing == FixedLength {
		return appendLength(dst, h.Length)
	}
	return append(dst, chunkedField...)
}

// NoLimit as Limits.Message is for bodies that are passed on as they come.
const NoLimit = protocol.NoLimit

// Discard removes from dst the bytes of the body that it holds, once they were
// passed on, so that a body of any length passes through a small buffer. What
// dst holds of a trailer section stays, but moves: take Trailers afterwards. The
// bytes go on counting against Limits.Message. dst may be nil if nothing was
// decoded into it.
func (d *Body) Discard(dst *bytebufferpool.ByteBuffer) {
	if d.length == 0 {
		return
	}
	dst.B = dst.B[:copy(dst.B, dst.B[d.length:])]
	d.line -= d.length
	d.passed += int64(d.length)
	d.length = 0
}

// Framing is what Reset was told.
func (d *Body) Framing() Framing { return d.framing }

// Verbatim tells how many of the bytes to come are the body's as they are, so
// that they can be copied without Decode: all that is left of a FixedLength body,
// all that Limits.Message leaves of one until the close, 0 of others.
func (d *Body) Verbatim() int64 {
	switch {
	case d.state != bodyBytes:
		return 0
	case d.framing == FixedLength:
		return min(d.left, d.room())
	}
	return d.room()
}

// Skip counts n more bytes, of those that Verbatim told of, as passed on.
func (d *Body) Skip(n int64) {
	d.passed += n
	if d.framing == FixedLength {
		if d.left -= n; d.left == 0 {
			d.state = bodyDone
		}
	}
}
