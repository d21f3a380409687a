package http1

import "bytes"

// Continue is the interim response that lets a client waiting with "Expect: 100-continue" send
// its body (RFC 9110 section 10.1.1).
const Continue = "HTTP/1.1 100 Continue\r\n\r\n"

// Framing says how the end of a body is found (RFC 9112 section 6.3).
type Framing uint8

const (
	NoBody      Framing = iota // nothing follows the head
	FixedLength                // Head.Length bytes follow
	Chunked                    // the chunked transfer coding
	UntilClose                 // all bytes until the peer closes; responses only
)

// Head is what a decoded head says about the connection and about the framing of its body. The
// zero Head is ready for use; Reset it between messages. While the decoder returns
// ErrIncomplete, Head holds the position of the scan, and the exported fields are undefined.
type Head struct {
	Minor          int    // 0 or 1, of HTTP/1.x
	KeepAlive      bool   // the peer lets the connection persist after this message
	ExpectContinue bool   // the peer waits for Continue before it sends the body
	HeadMethod     bool   // the method is HEAD, or was, for a response
	Upgrade        bool   // the request asks for an upgrade, or the response is a 101
	Protocols      []byte // of Upgrade, if a proxy may tunnel them; it aliases the input; else nil
	Connect        bool   // the method is CONNECT; the target is in Request.Authority
	Absolute       bool   // the target is in absolute-form, as a client sends it to a proxy
	HTTPS          bool   // Absolute, and the scheme is https
	Framing        Framing
	Length         int64 // bytes of the body if Framing is FixedLength, else 0

	Secure bool // set by the caller: the request comes over TLS, so its target may have the scheme https

	nominated []byte // options of Connection that may name trailers, in memory of their own; nil means none

	start   int // first byte of the start line: 2 if an empty line precedes it
	fields  int // first byte behind the start line; 0 means not found yet
	line    int // first byte of the line being scanned
	scanned int // b[line:scanned] holds no LF
}

// Reset prepares h for the next message.
func (h *Head) Reset() { *h = Head{} }

// end returns the length of the head at the start of b, including the empty line that ends it.
// It scans each byte once, however often it is called. Limits are checked as if the input
// arrived byte by byte, so that the result does not depend on how the input is split.
func (h *Head) end(b []byte, limit int, lineTooLong *Error) (int, error) {
	limit += h.start
	w := b
	if len(w) > limit {
		w = w[:limit]
	}
	for {
		i := bytes.IndexByte(w[h.scanned:], '\n')
		if i < 0 {
			break
		}
		lf := h.scanned + i
		if lf == h.line || w[lf-1] != '\r' {
			return 0, ErrBareLF
		}
		empty := lf-1 == h.line
		h.scanned, h.line = lf+1, lf+1
		if h.fields == 0 {
			h.fields = lf + 1
		} else if empty {
			return lf + 1, nil
		}
	}
	h.scanned = len(w)
	switch {
	case len(w) < limit:
		return 0, ErrIncomplete
	case h.fields == 0:
		return 0, lineTooLong
	}
	return 0, ErrHeaderTooLarge
}

// version accepts exactly HTTP/1.0 and HTTP/1.1. Other versions of that form are
// ErrBadVersion; anything else is malformed (RFC 9112 section 2.3).
func version(b []byte, malformed *Error) (minor int, err error) {
	if len(b) != 8 || string(b[:5]) != "HTTP/" || b[6] != '.' || !isDigit(b[5]) || !isDigit(b[7]) {
		return 0, malformed
	}
	if b[5] != '1' || b[7] > '1' {
		return 0, ErrBadVersion
	}
	return int(b[7] - '0'), nil
}
