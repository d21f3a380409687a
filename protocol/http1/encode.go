package http1

import (
	"slices"
	"strconv"

	"github.com/remora-proxy/remora/protocol"
)

// ResponseFlags describes the request that a response belongs to.
type ResponseFlags struct {
	Minor  int  // of the request's version: 0 for an HTTP/1.0 client
	Close  bool // the connection closes after this response
	ToHead bool // the request was a HEAD: send the head of a GET response, and no body
}

// maxFraming is an upper limit for the bytes of the lines that the encoder adds.
const maxFraming = 128

// requestSize returns an upper limit for the size of the head of req. It refuses req if the
// next hop could read it differently. The method must be a token other than CONNECT, which is
// no message to forward. The target must be in origin-form, or "*" for OPTIONS, and the
// authority a host. Names of headers and trailers must be tokens, and their values free of control
// characters, unless a header is marked Valid. Messages from this package's decoders are always
// valid. Messages from a link, from a converter or after rewriting may be invalid. They are refused,
// because a repair could change their meaning. The error is an *Error.
func requestSize(req *protocol.Request) (size int, err error) {
	if len(req.Method) == 0 || !protocol.TokenChar.All(req.Method) || string(req.Method) == "CONNECT" {
		return 0, ErrUnsafeMethod
	}
	p := req.Path
	if len(p) == 0 || p[0] != '/' && (string(p) != "*" || string(req.Method) != "OPTIONS") ||
		targetEnd(p) != len(p) || !protocol.IsAuthority(req.Authority, false) {
		return 0, ErrUnsafeTarget
	}
	size, ok := headersSize(req.Headers)
	if !ok || !headersValid(req.Trailers) {
		return 0, ErrUnsafeHeader
	}
	return size + len(req.Method) + len(p) + len(req.Authority) + maxFraming, nil
}

// responseSize is requestSize for a response. The status must be 200 to 599 (callers write
// interim responses themselves). The reason phrase must be free of control characters, too.
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
	return size + len(resp.Fields) + len(resp.Reason) + maxFraming, nil
}

// headersSize returns the size of hs on the wire; false if a header can't be sent.
func headersSize(hs []protocol.Header) (size int, ok bool) {
	for i := range hs {
		h := &hs[i]
		if !mayBeSent(h) {
			return 0, false
		}
		size += len(h.Name) + len(h.Value) + len(": \r\n")
	}
	return size, true
}

// mayBeSent reports whether h is valid. It believes a header that says so, but not in tests that look for
// reads of buffers that were given back.
func mayBeSent(h *protocol.Header) bool {
	return h.Valid && !protocol.PoisonBuffers || isValid(h)
}

func isValid(h *protocol.Header) bool {
	return len(h.Name) > 0 && protocol.TokenChar.All(h.Name) && textEnd(h.Value, 0) == len(h.Value)
}

func headersValid(hs []protocol.Header) bool {
	_, ok := headersSize(hs)
	return ok
}

// AppendRequestHead appends the head of req for a persistent HTTP/1.1 connection: the request
// line, Host, the end-to-end headers and the framing, which is chunked if there are Trailers,
// and Content-Length otherwise. AppendBody writes the body that must follow. It appends
// nothing if requestSize refuses req.
func AppendRequestHead(dst []byte, req *protocol.Request) []byte {
	n := len(dst)
	if dst = appendRequestFields(dst, req); len(dst) == n {
		return dst
	}
	switch {
	case len(req.Trailers) > 0:
		dst = append(dst, chunkedField...)
	case len(req.Body) > 0 || protocol.DefinesContent(req.Method):
		dst = appendLength(dst, int64(len(req.Body)))
	}
	return append(dst, '\r', '\n')
}

const chunkedField = "Transfer-Encoding: chunked\r\n"

// appendRequestFields appends the head of req without framing, if requestSize permits.
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
	return appendEndToEnd(dst, req.Headers)
}

// appendEndToEnd appends those of hs that are not about the connection or the framing.
func appendEndToEnd(dst []byte, hs []protocol.Header) []byte {
	for i := range hs {
		if kindOf(hs[i].Name) == endToEnd {
			dst = appendHeader(dst, &hs[i])
		}
	}
	return dst
}

// AppendResponseHead appends the head of resp as f demands: the status line, the headers, and
// the fields of framing and connection. The framing is chunked if chunkedResponse returns
// true, and Content-Length otherwise. AppendResponseBody writes the body that must follow. It
// appends nothing if responseSize refuses resp.
func AppendResponseHead(dst []byte, resp *protocol.Response, f ResponseFlags) []byte {
	n := len(dst)
	if dst = appendResponseFields(dst, resp); len(dst) == n {
		return dst
	}
	switch {
	case resp.Status == 204 || resp.Fields != nil:
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

const closeField = "Connection: close\r\n"

// appendResponseFields appends the head of resp without its framing, or nothing if
// responseSize refuses it.
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
	return append(dst, resp.Fields...)
}

// AppendFields appends the lines of protocol.Response.Fields: the end-to-end headers, without those that
// skip reports, and Content-Length. ok is false if a header can't be sent.
func AppendFields(dst []byte, resp *protocol.Response, skip func(name []byte) bool) (lines []byte, ok bool) {
	if !headersValid(resp.Headers) {
		return dst, false
	}
	for i := range resp.Headers {
		if h := &resp.Headers[i]; kindOf(h.Name) == endToEnd && !skip(h.Name) {
			dst = appendHeader(dst, h)
		}
	}
	if resp.Status != 204 {
		dst = appendLength(dst, int64(len(resp.Body)))
	}
	return dst, true
}

// declaredLength returns the Content-Length of a response whose body is not sent.
func declaredLength(resp *protocol.Response) int64 {
	if resp.DeclaredLength < 0 && len(resp.Body) > 0 {
		return int64(len(resp.Body)) // made by the proxy, such as an error response to a HEAD
	}
	return resp.DeclaredLength
}

// HasBody reports whether a body follows the head of resp.
func HasBody(resp *protocol.Response, f ResponseFlags) bool {
	return !f.ToHead && resp.Status != 204 && resp.Status != 304
}

// chunkedResponse reports whether the body of resp is chunked. HTTP/1.0 clients do not know
// that coding; they get the body without the trailers.
func chunkedResponse(resp *protocol.Response, f ResponseFlags) bool {
	return len(resp.Trailers) > 0 && f.Minor >= 1
}

// AppendResponse appends resp with its body, or nothing if responseSize refuses resp.
func AppendResponse(dst []byte, resp *protocol.Response, f ResponseFlags) []byte {
	n := len(dst)
	dst = AppendResponseHead(dst, resp, f)
	if len(dst) == n {
		return dst
	}
	return AppendResponseBody(dst, resp, f)
}

// AppendResponseBody appends the body for the head that AppendResponseHead wrote with the same
// arguments. To avoid copying a large body, a caller may send resp.Body itself if HasBody
// returns true and there are no Trailers.
func AppendResponseBody(dst []byte, resp *protocol.Response, f ResponseFlags) []byte {
	switch {
	case !HasBody(resp, f):
		return dst
	case !chunkedResponse(resp, f):
		return append(dst, resp.Body...)
	}
	return AppendBody(dst, resp.Body, resp.Trailers)
}

// AppendBody appends a body unchanged if there are no trailers, and as one chunk with a
// trailer section otherwise. Trailers that are not allowed are left out.
func AppendBody(dst, body []byte, trailers []protocol.Header) []byte {
	if len(trailers) == 0 {
		return append(dst, body...)
	}
	return AppendLastChunk(AppendChunk(dst, body), trailers)
}

// AppendChunk appends b as one chunk, or nothing if b is empty: that would end the body.
func AppendChunk(dst, b []byte) []byte {
	if len(b) == 0 {
		return dst
	}
	dst = strconv.AppendInt(dst, int64(len(b)), 16)
	dst = append(dst, '\r', '\n')
	dst = append(dst, b...)
	return append(dst, '\r', '\n')
}

// AppendLastChunk ends a chunked body, with the trailers that are allowed.
func AppendLastChunk(dst []byte, trailers []protocol.Header) []byte {
	dst = append(dst, "0\r\n"...)
	for i := range trailers {
		if mayBeSent(&trailers[i]) && allowedTrailer(trailers[i].Name) {
			dst = appendHeader(dst, &trailers[i])
		}
	}
	return append(dst, '\r', '\n')
}

func appendHeader(dst []byte, h *protocol.Header) []byte {
	if line := lineOf(h); line != nil {
		return append(dst, line...)
	}
	dst = append(dst, h.Name...)
	dst = append(dst, ':', ' ')
	dst = append(dst, h.Value...)
	return append(dst, '\r', '\n')
}

// lineOf returns the line in which h was received, if it reads as appendHeader writes it, or nil. One copy
// is faster than four.
func lineOf(h *protocol.Header) []byte {
	value := len(h.Name) + len(": ")
	end := value + len(h.Value)
	if len(h.Value) == 0 || cap(h.Name) < end+len("\r\n") {
		return nil
	}
	line := h.Name[:end+len("\r\n")]
	if &line[value] != &h.Value[0] || string(line[len(h.Name):value]) != ": " || string(line[end:]) != "\r\n" {
		return nil
	}
	return line
}

func appendLength(dst []byte, n int64) []byte {
	dst = append(dst, "Content-Length: "...)
	dst = strconv.AppendInt(dst, n, 10)
	return append(dst, '\r', '\n')
}
