package http1

import "github.com/remora-proxy/remora/protocol"

// removeNominated removes Connection fields from hs, and the fields they
// nominate unless protected. It runs once all fields are read, since a field may
// precede its nomination; and it marks before it compacts, since compacting in
// place overwrites Connection fields that are still to be read.
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
	clear(hs[len(kept):]) // it would keep the memory of the message
	return kept
}

// nominated tells whether a Connection field among hs lists name.
func nominated(hs []protocol.Header, name []byte) bool {
	for i := range hs {
		if kindOf(hs[i].Name) != fieldConnection {
			continue
		}
		list, option, more := hs[i].Value, []byte(nil), true
		for more {
			option, list, more = nextElement(list)
			if sameName(option, name) {
				return true
			}
		}
	}
	return false
}

// sameName compares two field names without regard to ASCII case.
func sameName(a, b []byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c |= 0x20
	}
	return c
}

// protected tells whether a field stays although Connection nominates it.
//
// Removal on a peer's word is how access control built on proxy-set fields was
// bypassed before (X-Forwarded-For stripped between two proxies), and how a
// response could lose its Set-Cookie or Cache-Control. RFC 9110 section 7.6.1
// forbids senders to nominate fields that are meant for all recipients, so
// nobody may rely on their removal: such a nomination is ignored, as is one of
// Host or of framing fields, which have been consumed by then. The Connection
// field itself is not passed on, so no later hop obeys it either.
func protected(name []byte) bool {
	for _, p := range protectedPrefixes {
		if len(name) >= len(p) && protocol.EqualFold(name[:len(p)], p) {
			return true
		}
	}
	return isOneOf(name, protectedNames)
}

// isOneOf tells whether name is in list, which is in lower case.
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
	"accept-encoding", "authorization", "baggage", "cache-control", "client-ip", "connection", "cookie", "date", "etag", "expires",
	"forwarded", "host", "expect", "idempotency-key", "location", "origin", "pragma", "range", "referer", "set-cookie",
	"traceparent", "tracestate", "true-client-ip", "vary", "via", "www-authenticate", "x-api-key", "x-frame-options",
}
