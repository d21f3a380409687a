// Package protocol holds the neutral request and response that travel through
// the sidecar, whatever the wire format they came in or leave by. Each wire
// format has a folder of its own: http1, link, dubbo.
package protocol

import "time"

// Codec tells in which form headers and body of a message are. It travels with
// the request over the link, so that a conversion happens once, in the upstream
// that speaks to the application.
type Codec uint8

const (
	CodecHTTP          Codec = iota // HTTP semantics, body as received
	CodecDubboFastjson              // Dubbo body, serialization id 6
	CodecDubboHessian2              // Dubbo body, serialization id 2
)

// Header is one field line. Names keep the case they came in and are compared
// without regard to it.
type Header struct{ Name, Value []byte }

// Request is one call. All slices alias memory with a single owner (see the
// place that fills the Request) and are valid as long as that owner says.
type Request struct {
	Codec     Codec
	Service   []byte // the service asked for, as routed; empty before routing
	Method    []byte // HTTP method, or method name of an RPC
	Path      []byte // HTTP: origin-form target with query ("/v1/x?y", or "*"); Dubbo: the interface
	Authority []byte // HTTP: Host, or the authority of an absolute-form target
	Headers   []Header
	Trailers  []Header
	Body      []byte

	// Version and Group of the interface that a Dubbo call is for. Routes match
	// them; they do not travel over links, where Body has them.
	Version []byte
	Group   []byte

	Deadline   time.Duration // on the loop's clock; 0: none
	Attempt    uint8         // 0: first attempt of its exchange
	Hedge      bool          // sent while another attempt is out
	Idempotent bool          // may be sent more than once
	OneWay     bool          // a Dubbo call that its caller wants no answer to
}

// Response is one answer. The same rule of ownership as for Request holds.
type Response struct {
	Status   int    // HTTP status code, or the one an RPC status maps to
	RPC      uint8  // the status of a Dubbo answer as it came; 0: not Dubbo
	Reason   []byte // HTTP reason phrase, may be empty
	Headers  []Header
	Trailers []Header
	Body     []byte

	// DeclaredLength is the Content-Length of a response that carries no body
	// (to HEAD, or 304) or whose body is a stream; -1 when none was declared.
	// Ignored otherwise.
	DeclaredLength int64

	// StreamToken of a response that came over a link stands for its body,
	// which waits on a connection of its own (link.StreamAnswer). nil: Body is
	// all of it.
	StreamToken []byte
}

// Reset empties r and keeps the capacity of its slices of headers.
func (r *Request) Reset() {
	clear(r.Headers) // what is kept for later must not keep the memory of a message
	clear(r.Trailers)
	*r = Request{Headers: r.Headers[:0], Trailers: r.Trailers[:0]}
}

// Reset empties r and keeps the capacity of its slices of headers.
func (r *Response) Reset() {
	clear(r.Headers)
	clear(r.Trailers)
	*r = Response{Headers: r.Headers[:0], Trailers: r.Trailers[:0], DeclaredLength: -1}
}

// Find returns the value of the first header called name (given in lower case),
// or nil.
func Find(hs []Header, name string) []byte {
	for i := range hs {
		if EqualFold(hs[i].Name, name) {
			return hs[i].Value
		}
	}
	return nil
}

// EqualFold compares b with lower, which is in lower case, without regard to
// ASCII case. Field names are ASCII (RFC 9110 section 5.1).
func EqualFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i := 0; i < len(b); i++ {
		c := b[i]
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}
