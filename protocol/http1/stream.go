package http1

import (
	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
)

// AppendStreamRequest appends the head of req, decoded as h, for a body that is streamed: with
// its Content-Length if h has one, and chunked otherwise. An Expect: 100-continue is
// forwarded, and the connection must close after the response. It appends nothing if
// requestSize refuses req.
func AppendStreamRequest(dst []byte, req *protocol.Request, h *Head) []byte {
	n := len(dst)
	if dst = appendRequestFields(dst, req); len(dst) == n {
		return dst
	}
	switch {
	case h.Framing != NoBody:
		dst = appendFraming(dst, h)
	case protocol.DefinesContent(req.Method):
		dst = appendLength(dst, 0)
	}
	if h.ExpectContinue {
		dst = append(dst, "Expect: 100-continue\r\n"...)
	}
	return append(append(dst, closeField...), '\r', '\n')
}

// AppendStreamResponse appends the head of resp for a streamed body with the framing of h. A
// FixedLength body gets its Content-Length. Other bodies are chunked, or end with the
// connection for an HTTP/1.0 client (minor 0). With NoBody the head has the declared length of
// a 304, or of a response to a HEAD. It appends nothing if responseSize refuses resp, or if h
// announces a body that this status can't have.
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

// MaxInterim is how many interim responses to one request are passed on. The rest is dropped, and no fault: an application
// may send any number (RFC 9110 section 15.2), such as a 102 from time to time. The request's deadline ends them. A 100
// for which the request waits with its body is always passed on.
const MaxInterim = 32

// AppendInterim appends an interim response (1xx except 101) for an HTTP/1.1 client, ahead of
// the final response, or nothing if the response is not safe to send.
func AppendInterim(dst []byte, resp *protocol.Response) []byte {
	if resp.Status < 100 || resp.Status > 199 || resp.Status == 101 ||
		textEnd(resp.Reason, 0) != len(resp.Reason) || !headersValid(resp.Headers) {
		return dst
	}
	reason := resp.Reason
	if len(reason) == 0 { // other protocols have none
		reason = []byte(protocol.Reasons[resp.Status])
	}
	dst = appendStatusLine(dst, resp.Status, reason)
	return append(appendEndToEnd(dst, resp.Headers), '\r', '\n')
}

func appendFraming(dst []byte, h *Head) []byte {
	if h.Framing == FixedLength {
		return appendLength(dst, h.Length)
	}
	return append(dst, chunkedField...)
}

// Discard removes the body bytes from dst after they were forwarded, so that a body of any
// length passes through a small buffer. The part of a trailer section in dst stays but moves:
// call Trailers afterwards. The removed bytes still count against Limits.Message. dst may be
// nil if nothing was decoded into it.
func (d *Body) Discard(dst *bytebufferpool.ByteBuffer) {
	if d.length == 0 {
		return
	}
	dst.B = dst.B[:copy(dst.B, dst.B[d.length:])]
	d.line -= d.length
	d.passed += int64(d.length)
	d.length = 0
}

// HasLength reports whether the length of the body was announced, or there is no body.
func (d *Body) HasLength() bool { return d.framing == FixedLength || d.framing == NoBody }

// Verbatim returns how many of the next bytes are body bytes without framing, which can be
// copied without Decode: the rest of a FixedLength body or of a chunk, or what Limits.Message allows
// of an UntilClose body. It returns 0 where framing follows.
func (d *Body) Verbatim() int64 {
	switch {
	case d.part == chunkData:
		return d.left
	case d.part != bodyBytes:
		return 0
	case d.framing == FixedLength:
		return min(d.left, d.room())
	}
	return d.room()
}

// Skip counts n more bytes as forwarded. n must not exceed Verbatim.
func (d *Body) Skip(n int64) {
	d.passed += n
	if d.framing == UntilClose {
		return
	}
	if d.left -= n; d.left > 0 {
		return
	}
	if d.part = bodyDone; d.framing == Chunked {
		d.part = chunkCR
	}
}
