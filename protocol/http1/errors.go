package http1

import "errors"

// ErrIncomplete means that more input is needed. Call the decoder again with the same Head and
// the same bytes, extended; the slice may have moved.
var ErrIncomplete = errors.New("http1: incomplete message")

// Error says why a message is refused. All instances are variables of this package, so they
// can be compared and cost nothing to return.
type Error struct {
	Code   string // stable, in kebab-case: for x-remora-error, logs and metrics
	Status int    // of the response to a request that is refused with this error
	Text   string // one line for people
}

// Error returns the text, prefixed with the package name.
func (e *Error) Error() string { return "http1: " + e.Text }

// Errors of the decoder of heads.
var (
	ErrBadRequestLine    = &Error{"bad-request-line", 400, "malformed request line"}
	ErrBadTarget         = &Error{"bad-target", 400, "malformed request target"}
	ErrBadStatusLine     = &Error{"bad-status-line", 502, "malformed status line"}
	ErrBadVersion        = &Error{"bad-version", 505, "HTTP version not supported"}
	ErrBareLF            = &Error{"bare-lf", 400, "line feed without carriage return"}
	ErrBareCR            = &Error{"bare-cr", 400, "carriage return without line feed"}
	ErrObsFold           = &Error{"obs-fold", 400, "folded header line"}
	ErrBadFieldName      = &Error{"bad-field-name", 400, "malformed header name"}
	ErrSpaceBeforeColon  = &Error{"space-before-colon", 400, "white space between header name and colon"}
	ErrBadFieldValue     = &Error{"bad-field-value", 400, "control character in header value"}
	ErrMissingHost       = &Error{"missing-host", 400, "no Host header"}
	ErrDuplicateHost     = &Error{"duplicate-host", 400, "more than one Host header"}
	ErrBadHost           = &Error{"bad-host", 400, "malformed host"}
	ErrBadContentLength  = &Error{"bad-content-length", 400, "malformed Content-Length"}
	ErrDuplicateLength   = &Error{"duplicate-content-length", 400, "more than one Content-Length"}
	ErrDuplicateCoding   = &Error{"duplicate-transfer-encoding", 400, "more than one Transfer-Encoding"}
	ErrLengthAndCoding   = &Error{"length-and-coding", 400, "both Content-Length and Transfer-Encoding"}
	ErrCodingInHTTP10    = &Error{"coding-in-http10", 400, "Transfer-Encoding in an HTTP/1.0 message"}
	ErrUnknownCoding     = &Error{"unknown-coding", 501, "transfer coding other than chunked"}
	ErrBodyNotAllowed    = &Error{"body-not-allowed", 502, "interim response with a body"}
	ErrBadConnection     = &Error{"bad-connection", 400, "malformed or excessive Connection header"}
	ErrExpectationFailed = &Error{"expectation-failed", 417, "expectation other than 100-continue"}
	ErrTargetTooLong     = &Error{"target-too-long", 414, "request line too long"}
	ErrHeaderTooLarge    = &Error{"header-too-large", 431, "header section too large"}
	ErrTooManyHeaders    = &Error{"too-many-headers", 431, "too many header lines"}
)

// Errors of the decoder of bodies.
var (
	ErrMessageTooLarge = &Error{"message-too-large", 413, "body too large"}
	ErrBadChunkSize    = &Error{"bad-chunk-size", 400, "malformed chunk size"}
	ErrBadChunkExt     = &Error{"bad-chunk-extension", 400, "malformed chunk extension"}
	ErrBadChunkEnd     = &Error{"bad-chunk-end", 400, "chunk longer than its size"}
	ErrChunkOverhead   = &Error{"chunk-overhead", 400, "too much chunk framing for the content"}
	ErrTrailerTooLarge = &Error{"trailer-too-large", 431, "trailer section too large"}
	ErrTruncated       = &Error{"body-truncated", 400, "connection closed inside the body"}
)

// Errors of the encoder.
var (
	ErrUnsafeMethod = &Error{"unsafe-method", 502, "method is not a token, or is CONNECT"}
	ErrUnsafeTarget = &Error{"unsafe-target", 502, "invalid target or authority"}
	ErrUnsafeHeader = &Error{"unsafe-header", 502, "invalid header name or value"}
	ErrUnsafeStatus = &Error{"unsafe-status", 502, "status code out of range or interim"}
	ErrUnsafeReason = &Error{"unsafe-reason", 502, "control character in the reason phrase"}
)
