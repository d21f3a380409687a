package trace

import (
	"bytes"

	"github.com/remora-proxy/remora/protocol"
)

// RequestIDOf returns the id of a request, or nil. It searches from the end of the
// headers, where the first sidecar of the request has added it.
func RequestIDOf(headers []protocol.Header) []byte {
	for i := len(headers) - 1; i >= 0; i-- {
		name := headers[i].Name
		if bytes.Equal(name, protocol.NameRequestID) || protocol.EqualFold(name, "x-request-id") {
			return headers[i].Value
		}
	}
	return nil
}

// IDOf returns a request's trace ID in hexadecimal, or nil. It aliases the header.
func IDOf(hs []protocol.Header) []byte {
	if _, at, ok := ContextOf(hs); ok {
		return IDText(hs[at].Value)
	}
	return nil
}

// The names of the headers of a trace context.
var (
	NameParent = []byte("traceparent")
	NameState  = []byte("tracestate")
)

// ContextOf returns the trace context of a request, and the index of its traceparent.
// ok is false if there is no valid one. More than one traceparent counts as none
// (section 3.2.2.1 of the W3C recommendation).
func ContextOf(hs []protocol.Header) (c Context, at int, ok bool) {
	found := 0
	for i := range hs {
		if len(hs[i].Name) == len(NameParent) && protocol.EqualFold(hs[i].Name, "traceparent") {
			at = i
			found++
		}
	}
	if found == 1 {
		c, ok = Parse(hs[at].Value)
	}
	return c, at, ok
}

// IsContext reports whether h is traceparent or tracestate.
func IsContext(h protocol.Header) bool {
	return protocol.EqualFold(h.Name, "traceparent") || IsState(h)
}

// IsState reports whether h is tracestate.
func IsState(h protocol.Header) bool { return protocol.EqualFold(h.Name, "tracestate") }

// Member is the member of tracestate that marks a request whose attempt is a hedge or retry.
const Member = "remora=h"
