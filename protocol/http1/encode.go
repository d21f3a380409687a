package http1

import (
	"slices"
	"strconv"

	"github.com/remora-proxy/remora/protocol"
)

// ResponseFlags says to whom a response goes.
type ResponseFlags struct {
	Minor  int  // of the request's version: 0 for an HTTP/1.0 client
	Close  bool // the connection closes after this response
	ToHead bool // the request was a HEAD: the head says what a GET would, no body follows
}

// ValidRequest tells whether req can be sent without the next hop reading it
// differently: the method a token (and not CONNECT, which is no message to
// forward), the target in origin-form or "*" for OPTIONS, the authority a host,
// header names tokens and their values, like those of trailers, free of control
// characters. Messages from this package's decoders are valid as they are; those
// from the link, from converters and after rewriting may not be, and refusing
// them is better than mending them to mean something else. The error is an
// *Error, for a 502.
func ValidRequest(req *protocol.Request) error {
	_, err := requestSize(req)
	return err
}

// ValidResponse does for a response what ValidRequest does for a request: the
// status from 200 to 599 (interim responses are the caller's own), reason
// phrase, headers and trailers free of control characters.
func ValidResponse(resp *protocol.Response) error {
	_, err := responseSize(resp)
	return err
}

// maxFraming is more than the lines take that the encoder adds of its own.
const maxFraming = 128

func requestSize(req *protocol.Request) (size int, err error) {
	if len(req.Method) == 0 || !tokenChar.all(req.Method) || string(req.Method) == "CONNECT" {
		return 0, ErrUnsafeMethod
	}
	p := req.Path
	if len(p) == 0 || p[0] != '/' && (string(p) != "*" || string(req.Method) != "OPTIONS") ||
		!targetChar.all(p) || !validAuthority(req.Authority, false) {
		return 0, ErrUnsafeTarget
	}
	size, ok := headersSize(req.Headers)
	if !ok || !headersValid(req.Trailers) {
		return 0, ErrUnsafeHeader
	}
	return size + len(req.Method) + len(p) + len(req.Authority) + maxFraming, nil
}

func responseSize(resp *protocol.Response) (size int, err error) {
	if resp.Status < 200 || resp.Status > 599 {
		return 0, ErrUnsafeStatus
	}
	if textEnd(resp.Reason, 0) != len(resp.Reason) {
		return 0, ErrUnsafeReason
	}
	size, ok := headersSize(resp.Headers)
	if !ok || !headersValid(resp.Trailers) {
		return 0, ErrUnsafeHeader
	}
	return size + len(resp.Reason) + maxFraming, nil
}

// headersSize returns the bytes that hs takes on the wire; ok is false when one
// can't stand there.
func headersSize(hs []protocol.Header) (size int, ok bool) {
	for i := range hs {
		h := &hs[i]
		if len(h.Name) == 0 || !tokenChar.all(h.Name) || textEnd(h.Value, 0) != len(h.Value) {
			return 0, false
		}
		size += len(h.Name) + len(h.Value) + len(": \r\n")
	}
	return size, true
}

func headersValid(hs []protocol.Header) bool {
	_, ok := headersSize(hs)
	return ok
}

// AppendRequestHead appends the head of req: the request line, Host, the
// headers and the framing, for a persistent HTTP/1.1 connection. The framing is
// chunked if there are Trailers, else Content-Length; AppendBody writes what
// belongs behind it. Headers that belong to the connection or its framing are
// left out: the encoder writes its own.
//
// When ValidRequest refuses req it appends nothing, so a caller that did not ask
// can't send what it should not.
func AppendRequestHead(dst []byte, req *protocol.Request) []byte {
	n := len(dst)
	if dst = appendRequestFields(dst, req); len(dst) == n {
		return dst
	}
	switch {
	case len(req.Trailers) > 0:
		dst = append(dst, chunkedField...)
	case len(req.Body) > 0 || definesContent(req.Method):
		dst = appendLength(dst, int64(len(req.Body)))
	}
	return append(dst, '\r', '\n')
}

// chunkedField announces the chunked transfer coding.
const chunkedField = "Transfer-Encoding: chunked\r\n"

// appendRequestFields appends the head of req up to its framing, or nothing when
// ValidRequest refuses it.
func appendRequestFields(dst []byte, req *protocol.Request) []byte {
	size, err := requestSize(req)
	if err != nil {
		return dst
	}
	dst = slices.Grow(dst, size)
	dst = append(dst, req.Method...)
	dst = append(dst, ' ')
	dst = append(dst, req.Path...)
	dst = append(dst, " HTTP/1.1\r\nHost: "...)
	dst = append(dst, req.Authority...)
	dst = append(dst, '\r', '\n')
	for i := range req.Headers {
		if kindOf(req.Headers[i].Name) == endToEnd {
			dst = appendHeader(dst, &req.Headers[i])
		}
	}
	return dst
}

// definesContent tells whether a request with this method says so when it has
// no content (RFC 9110 section 8.6).
func definesContent(method []byte) bool {
	switch string(method) {
	case "GET", "HEAD", "DELETE", "OPTIONS", "TRACE":
		return false
	}
	return true
}

// AppendRequest appends req with its body, or nothing when ValidRequest refuses
// it.
func AppendRequest(dst []byte, req *protocol.Request) []byte {
	n := len(dst)
	dst = AppendRequestHead(dst, req)
	if len(dst) == n {
		return dst
	}
	return AppendBody(dst, req.Body, req.Trailers)
}

// AppendResponseHead appends the head of resp as f asks for: the status line,
// the headers, and what the encoder says about framing and connection. The
// framing is chunked if chunkedResponse holds, else Content-Length;
// AppendResponseBody writes what belongs behind it.
//
// When ValidResponse refuses resp it appends nothing.
func AppendResponseHead(dst []byte, resp *protocol.Response, f ResponseFlags) []byte {
	n := len(dst)
	if dst = appendResponseFields(dst, resp); len(dst) == n {
		return dst
	}
	switch {
	case resp.Status == 204:
	case resp.Status == 304 || f.ToHead:
		if n := declaredLength(resp); n >= 0 {
			dst = appendLength(dst, n)
		}
	case chunkedResponse(resp, f):
		dst = append(dst, chunkedField...)
	default:
		dst = appendLength(dst, int64(len(resp.Body)))
	}
	switch {
	case f.Close:
		dst = append(dst, closeField...)
	case f.Minor == 0:
		dst = append(dst, "Connection: keep-alive\r\n"...)
	}
	return append(dst, '\r', '\n')
}

// closeField announces that the connection closes after the message.
const closeField = "Connection: close\r\n"

// appendResponseFields appends the head of resp up to its framing, or nothing
// when ValidResponse refuses it.
func appendResponseFields(dst []byte, resp *protocol.Response) []byte {
	size, err := responseSize(resp)
	if err != nil {
		return dst
	}
	dst = slices.Grow(dst, size)
	dst = appendStatusLine(dst, resp.Status, resp.Reason)
	for i := range resp.Headers {
		switch kindOf(resp.Headers[i].Name) {
		case endToEnd, fieldHost, fieldExpect:
			dst = appendHeader(dst, &resp.Headers[i])
		}
	}
	return dst
}

// declaredLength is the Content-Length of a response whose body stays here.
func declaredLength(resp *protocol.Response) int64 {
	if resp.DeclaredLength < 0 && len(resp.Body) > 0 {
		return int64(len(resp.Body)) // made by us, like an error answer to a HEAD
	}
	return resp.DeclaredLength
}

// HasBody tells whether a body follows the head of resp.
func HasBody(resp *protocol.Response, f ResponseFlags) bool {
	return !f.ToHead && resp.Status != 204 && resp.Status != 304
}

// chunkedResponse: HTTP/1.0 clients do not know the chunked coding; they get the
// body without the trailers.
func chunkedResponse(resp *protocol.Response, f ResponseFlags) bool {
	return len(resp.Trailers) > 0 && f.Minor >= 1
}

// AppendResponse appends resp with its body, or nothing when ValidResponse
// refuses it.
func AppendResponse(dst []byte, resp *protocol.Response, f ResponseFlags) []byte {
	n := len(dst)
	dst = AppendResponseHead(dst, resp, f)
	if len(dst) == n {
		return dst
	}
	return AppendResponseBody(dst, resp, f)
}

// AppendResponseBody appends what belongs behind the head that
// AppendResponseHead made of the same arguments. A caller that would rather not
// copy a large body sends resp.Body itself if HasBody and there are no Trailers.
func AppendResponseBody(dst []byte, resp *protocol.Response, f ResponseFlags) []byte {
	switch {
	case !HasBody(resp, f):
		return dst
	case !chunkedResponse(resp, f):
		return append(dst, resp.Body...)
	}
	return AppendBody(dst, resp.Body, resp.Trailers)
}

// AppendBody appends a body as it is, or, when there are trailers, as one chunk
// and a trailer section. Trailers that may not stand there are left out.
func AppendBody(dst, body []byte, trailers []protocol.Header) []byte {
	if len(trailers) == 0 {
		return append(dst, body...)
	}
	return AppendLastChunk(AppendChunk(dst, body), trailers)
}

// AppendChunk appends b as one chunk, and nothing when b is empty: that would end
// the body.
func AppendChunk(dst, b []byte) []byte {
	if len(b) == 0 {
		return dst
	}
	dst = strconv.AppendInt(dst, int64(len(b)), 16)
	dst = append(dst, '\r', '\n')
	dst = append(dst, b...)
	return append(dst, '\r', '\n')
}

// AppendLastChunk ends a chunked body, with the trailers that may stand there.
func AppendLastChunk(dst []byte, trailers []protocol.Header) []byte {
	dst = append(dst, "0\r\n"...)
	for i := range trailers {
		if headersValid(trailers[i:i+1]) && allowedTrailer(trailers[i].Name) {
			dst = appendHeader(dst, &trailers[i])
		}
	}
	return append(dst, '\r', '\n')
}

func appendHeader(dst []byte, h *protocol.Header) []byte {
	dst = append(dst, h.Name...)
	dst = append(dst, ':', ' ')
	dst = append(dst, h.Value...)
	return append(dst, '\r', '\n')
}

func appendLength(dst []byte, n int64) []byte {
	dst = append(dst, "Content-Length: "...)
	dst = strconv.AppendInt(dst, n, 10)
	return append(dst, '\r', '\n')
}
