package protocol

import "slices"

// What is added to messages and taken from them on the way. Two sidecars and the link between
// them are one intermediary to the applications beside them: a request gets it where it enters
// over HTTP, and a response where it leaves its application. Links carry both as they are.

// Headers between the sidecar and the applications beside it. A sidecar honours those of clients on loopback only, and
// passes none on: what an application or a client gets of them, a sidecar has added.
const (
	HeaderPrefix     = "x-remora-"
	HeaderIdempotent = "x-remora-idempotent" // "1": may be sent more than once
	HeaderAttempt    = "x-remora-attempt"    // attempt number that led to this call; also sent to the application
	HeaderHedge      = "x-remora-hedge"      // "off": the caller wants no hedges
	HeaderTimeout    = "x-remora-timeout-ms" // how long the caller waits; also sent to the application
	HeaderClass      = "x-remora-class"      // requests of a class take about equally long
	HeaderMirror     = "x-remora-mirror"     // "1": a copy of a request, whose response is discarded; sent to the application
	HeaderPriority   = "x-remora-priority"   // PriorityBatch: all other requests go first; also sent to the application
	HeaderError      = "x-remora-error"      // of a response that a sidecar made: the code of the failure
	HeaderFallback   = "x-remora-fallback"   // of a response in place of a failure: what has failed
)

// Headers of others that say how long the caller waits.
const (
	HeaderEnvoyTimeout = "x-envoy-expected-rq-timeout-ms"
	HeaderGRPCTimeout  = "grpc-timeout"
)

// PriorityBatch is the value of HeaderPriority for a request that waits for all others.
const PriorityBatch = "batch"

// Names and values that are added. They are shared and never written to.
var (
	NameVia            = []byte("Via")
	NameLoop           = []byte("CDN-Loop") // RFC 8586
	NameForwardedFor   = []byte("X-Forwarded-For")
	NameForwardedProto = []byte("X-Forwarded-Proto")
	NameRequestID      = []byte("X-Request-Id")
	NameDate           = []byte("Date")
	NameContentType    = []byte("Content-Type")
	NameError          = []byte("X-Remora-Error")
	NameTimeout        = []byte(HeaderTimeout)
	NameMirror         = []byte(HeaderMirror)
	NameFallback       = []byte(HeaderFallback)

	SchemeHTTP = []byte("http")
	// SchemeHTTPS is the value for a client that uses TLS.
	SchemeHTTPS = []byte("https")

	// ViaValues is by the minor version of the message received (RFC 9110 section 7.6.3), or
	// MinorHTTP2.
	ViaValues = [3][]byte{[]byte("1.0 remora"), []byte("1.1 remora"), MinorHTTP2: []byte("2.0 remora")}

	// ViaHTTP2 is the value for a message received over HTTP/2.
	ViaHTTP2 = []byte("2.0 remora")

	// Pseudonym stands for all sidecars in Via and CDN-Loop, so that none tells where it runs.
	Pseudonym = []byte("remora")
)

// MinorHTTP2 stands for HTTP/2 where the minor versions of HTTP/1 are.
const MinorHTTP2 = 2

// IsOwn reports whether a name begins with HeaderPrefix, in any case, and with _ in place of any -: CGI and
// its successors make one variable of both.
func IsOwn(name []byte) bool {
	if len(name) <= len(HeaderPrefix) || name[len("x-re")]|0x20 != 'm' { // unlike X-Request-Id and X-Forwarded-For
		return false
	}
	for i := range len(HeaderPrefix) {
		if c, want := name[i], HeaderPrefix[i]; c != want && !(c == '_' && want == '-') && !(c-'A' < 26 && c|0x20 == want) {
			return false
		}
	}
	return true
}

// WithoutOwn returns headers, or trailers, without our own, in the memory of hs.
func WithoutOwn(hs []Header) []Header {
	for i := range hs {
		if IsOwn(hs[i].Name) {
			return slices.DeleteFunc(hs, func(h Header) bool { return IsOwn(h.Name) })
		}
	}
	return hs
}

// FromLink returns the headers of a request that came over a link, without those of our own that no
// sidecar sends on one. The rest is in the request itself. login is what its credentials do to a
// connection. kept is in the memory of hs.
func FromLink(hs []Header) (kept []Header, login Login) {
	forged := false
	for i := range hs {
		switch h := &hs[i]; {
		case IsOwn(h.Name):
			forged = forged || isForged(*h)
		case len(h.Name) < len("authorization"):
		case IsCredentials(h.Name):
			login = max(login, LoginOf(h.Value))
		}
	}
	if forged {
		hs = slices.DeleteFunc(hs, isForged)
	}
	return hs, login
}

// isForged reports whether a header of our own is one that no sidecar sends on a link.
func isForged(h Header) bool {
	return IsOwn(h.Name) && !EqualFold(h.Name, HeaderTimeout) && !(EqualFold(h.Name, HeaderMirror) && string(h.Value) == "1")
}

// FromEndpoint returns the headers of an endpoint's response without our own: only a sidecar
// may say x-remora-error. It also removes Persistent-Auth, since the client's connection is not the one
// that was logged in. dated reports whether a Date is among them, and login whether the response is
// about the login of a connection. kept is in the memory of hs.
func FromEndpoint(hs []Header) (kept []Header, dated, login bool) {
	own := 0
	for i := range hs {
		switch name := hs[i].Name; {
		case len(name) == len("date"):
			dated = dated || string(name) == "Date" || EqualFold(name, "date")
		case IsOwn(name):
			own++
		case len(name) < len("persistent-auth"):
		case isPersistentAuth(name):
			login = true
			own++
		case isChallenge(name):
			login = login || bindsConnection(hs[i].Value)
		}
	}
	if own > 0 {
		hs = slices.DeleteFunc(hs, func(h Header) bool { return IsOwn(h.Name) || isPersistentAuth(h.Name) })
	}
	return hs, dated, login
}

// isPersistentAuth reports whether a header says if a login lasts as long as its connection ([MS-N2HT]).
func isPersistentAuth(name []byte) bool { return EqualFold(name, "persistent-auth") }
