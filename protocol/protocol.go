// Package protocol holds the neutral request and response that travel through the sidecar, and
// the buffers that hold their bytes. A downstream session decodes its wire format into a
// Request; an upstream encodes it again. Each wire format has a folder of its own: http1, http2,
// link, dubbo. This package knows none of them, and neither routes, endpoints nor connections.
//
//	protocol.go  Request, Response and Header; copy.go copies of them
//	codec.go     the form of a body: HTTP, or a call with its serialization
//	buffers.go   the memory of messages; limits.go its bounds
//	names.go     headers of sidecars, and of others that say how long a caller waits; timeout.go reads those
//	chars.go     sets of bytes; reasons.go the reason phrases of HTTP
//	login.go     credentials that log in a connection
//	grpc.go      the outcome of a gRPC call; orca.go the load that a response reports
package protocol

import "time"

// Header is one field line. A name keeps the case in which it was received, and is compared
// without regard to case.
type Header struct {
	Name, Value []byte

	// Valid says that Name is a token and that Value has no control character but HTAB (RFC 9110 sections
	// 5.1, 5.5): an encoder of HTTP/1.1 does not check them again. A writer that is not sure leaves it
	// false. One that changes Name or Value keeps it true, or clears it.
	Valid bool

	// NeverIndexed says that no compression table may take the field, as whoever sent it over HTTP/2 wants (RFC 7541
	// section 7.1.3). HTTP/1.1 can't say that.
	NeverIndexed bool
}

// String returns h as a line of text, for messages.
func (h Header) String() string { return string(h.Name) + ": " + string(h.Value) }

// Request is one request. All its slices alias memory of a single owner, which says how long
// they are valid. The function that fills a Request names the owner.
type Request struct {
	Codec     Codec
	Service   []byte // the service that routing chose; empty before
	Method    []byte // the HTTP method, or the method name of an RPC
	Path      []byte // HTTP: origin-form target with query ("/v1/x?y", or "*"); Dubbo: the interface
	Authority []byte // HTTP: Host, or the authority of an absolute-form target
	Headers   []Header
	Trailers  []Header
	Body      []byte

	// Version and Group of the called Dubbo interface. Routes match them. A link does not
	// carry them, because Body contains them.
	Version []byte
	Group   []byte

	Deadline   time.Duration // on the loop's clock; 0 means no deadline
	Hold       time.Duration // for how long its sender wants the head of a stream to be held without a byte of its body
	Timed      bool          // the caller set a deadline: the application is told how much of it is left
	Attempt    uint8         // 0 is the first attempt of its exchange
	Hedge      bool          // sent while another attempt is in flight
	Tied       bool          // a hedge that may queue, since its sender withdraws it when the primary starts
	Idempotent bool          // may be sent more than once
	OneWay     bool          // a Dubbo call without a response
	Batch      bool          // its priority is batch: requests without it go first
	Alone      bool          // its connection has no other in flight at the service; false while the service has few
	Login      bool          // it may log in its connection: see Login. Links do not carry this

	NeverIndexed bool // no compression table may take Method, Path and Authority: see Header
}

// Response is one response. The ownership rule of Request holds for it, too.
type Response struct {
	Status   int    // HTTP status code, or the code that an RPC status maps to
	RPC      uint8  // the status of a Dubbo response as received; 0 means not Dubbo
	Batch    bool   // the request was batch; links do not carry it
	Reason   []byte // HTTP reason phrase; may be empty
	Headers  []Header
	Trailers []Header
	Body     []byte

	// Fields are further headers, as valid lines of HTTP/1.1, with the Content-Length of a body. Only
	// race.Response.Own knows how others than HTTP/1.1 send them.
	Fields []byte

	// DeclaredLength is the Content-Length of a response without a body (to HEAD, or 304) or
	// with a streamed body; -1 means that none was declared. It is ignored otherwise.
	DeclaredLength int64

	// StreamToken stands for the body of a response from a link, if a connection of its own
	// carries that body (link.StreamAnswer). nil means that Body is the whole body.
	StreamToken []byte
}

// Scratch is room for decoding a message of either kind.
type Scratch struct {
	Request  Request
	Response Response
}

// Reset empties r and keeps the capacity of its header slices.
func (r *Request) Reset() {
	clear(r.Headers) // the kept capacity must not keep a message's memory alive
	clear(r.Trailers)
	*r = Request{Headers: r.Headers[:0], Trailers: r.Trailers[:0]}
}

// Reset empties r and keeps the capacity of its header slices.
func (r *Response) Reset() {
	clear(r.Headers)
	clear(r.Trailers)
	*r = Response{Headers: r.Headers[:0], Trailers: r.Trailers[:0], DeclaredLength: -1}
}

// Find returns the value of the first header with this name, given in lower case, or nil.
func Find(hs []Header, name string) []byte {
	for i := range hs {
		if EqualFold(hs[i].Name, name) {
			return hs[i].Value
		}
	}
	return nil
}

// EqualFold reports whether b equals lower, which must be in lower case, without regard to
// ASCII case. Field names are ASCII (RFC 9110 section 5.1).
func EqualFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if c != lower[i] && (c < 'A' || c > 'Z' || c|0x20 != lower[i]) {
			return false
		}
	}
	return true
}

// HasPrefixFold reports whether b begins with lower, which must be in lower case, without regard to ASCII
// case. Most texts are spelled like lower.
func HasPrefixFold(b []byte, lower string) bool {
	return len(b) >= len(lower) && (string(b[:len(lower)]) == lower || EqualFold(b[:len(lower)], lower))
}
