package http1

import (
	"bytes"

	"github.com/remora-proxy/remora/protocol"
)

// removeNominated removes Connection fields from hs, and the fields that they nominate unless
// protected. It runs after all fields are read, since a field may precede its nomination. It
// marks all fields before it compacts hs, because compacting overwrites Connection fields that
// are still needed.
func removeNominated(hs []protocol.Header) []protocol.Header {
	for i := range hs {
		if name := hs[i].Name; nominated(hs, name) && !protected(name) {
			hs[i].Name = nil
		}
	}
	kept := hs[:0]
	for i := range hs {
		if hs[i].Name != nil && kindOf(hs[i].Name) != fieldConnection {
			kept = append(kept, hs[i])
		}
	}
	clear(hs[len(kept):]) // otherwise it keeps the message's memory alive
	return kept
}

// nominated reports whether a Connection field in hs lists name. Both are ASCII tokens.
func nominated(hs []protocol.Header, name []byte) bool {
	for i := range hs {
		if kindOf(hs[i].Name) == fieldConnection && lists(hs[i].Value, name) {
			return true
		}
	}
	return false
}

// nominations returns the values of all Connection fields in hs as one, in new memory: the head may be gone when the trailers
// arrive.
func nominations(hs []protocol.Header) (list []byte) {
	for i := range hs {
		if kindOf(hs[i].Name) == fieldConnection {
			list = append(append(list, hs[i].Value...), ',')
		}
	}
	return list
}

// lists reports whether an element of list is name, in any case.
func lists(list, name []byte) bool {
	for more := true; more; {
		var element []byte
		if element, list, more = nextElement(list); bytes.EqualFold(element, name) {
			return true
		}
	}
	return false
}

// protected reports whether a field stays although Connection nominates it.
//
// Removing fields at a peer's request has been used to bypass access control that relies on
// fields set by proxies (X-Forwarded-For stripped between two proxies). A response could lose
// its Set-Cookie or Cache-Control. RFC 9110 section 7.6.1 forbids senders to nominate fields
// that are meant for all recipients, so nobody may rely on their removal, and such a
// nomination is ignored. So is one of Host or of framing fields, which have been consumed
// before. The Connection field itself is not forwarded, so no later hop obeys it either.
func protected(name []byte) bool {
	for _, p := range protectedPrefixes {
		if len(name) >= len(p) && protocol.EqualFold(name[:len(p)], p) {
			return true
		}
	}
	return isOneOf(name, protectedNames)
}

// isOneOf reports whether name is in list, which must be in lower case.
func isOneOf(name []byte, list []string) bool {
	for _, s := range list {
		if protocol.EqualFold(name, s) {
			return true
		}
	}
	return false
}

var protectedPrefixes = []string{
	"x-remora-", "x-forwarded-", "x-real-", "x-request-", "x-envoy-", "x-b3-", "x-auth", "x-original-",
	"content-", "access-control-", "sec-", "if-", "proxy-authenticat", "proxy-authoriz", "strict-",
}

var protectedNames = []string{
	"accept-encoding", "authorization", "baggage", "cache-control", "cdn-loop", "client-ip", "connection", "cookie", "date", "etag", "expires",
	"forwarded", "host", "expect", "idempotency-key", "location", "origin", "pragma", "range", "referer", "set-cookie",
	"traceparent", "tracestate", "true-client-ip", "vary", "via", "www-authenticate", "x-api-key", "x-frame-options",
}
