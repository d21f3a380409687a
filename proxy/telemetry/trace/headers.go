package trace

import (
	"slices"

	"github.com/remora-proxy/remora/protocol"
)

// RequestIDOf is the id of a request that comes over a link, or nil: a header at the
// end of the list or near it, where arrive puts it.
func RequestIDOf(headers []protocol.Header) []byte {
	for _, h := range slices.Backward(headers) {
		if len(h.Name) == len(protocol.NameRequestID) && protocol.EqualFold(h.Name, "x-request-id") {
			return h.Value
		}
	}
	return nil
}

// IDOf is that of the request's trace in hexadecimal, or nil.
func IDOf(hs []protocol.Header) []byte {
	if _, at, ok := ContextOf(hs); ok {
		return IDText(hs[at].Value)
	}
	return nil
}

var (
	NameParent = []byte("traceparent")
	NameState  = []byte("tracestate")
)

// ContextOf finds the one traceparent. With more than one there is none (section
// 3.2.2.1 wants one).
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

func IsContext(h protocol.Header) bool {
	return protocol.EqualFold(h.Name, "traceparent") || IsState(h)
}

func IsState(h protocol.Header) bool { return protocol.EqualFold(h.Name, "tracestate") }

// Member in tracestate marks a call that a hedge or a retry led to.
const Member = "remora=h"
