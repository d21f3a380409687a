package exchange

import "github.com/remora-proxy/remora/proxy/fault"

// Caller is the downstream's end of an exchange: the session it came from.
// Exactly one of reply and fail is called, once, unless the session withdrew
// the exchange with cancel.
type Caller interface {
	// Encode makes ready what reply is to say, or tells why the caller can't have
	// ans. One of reply and fail follows before anything else.
	Encode(ex *Exchange, ans *Response) *fault.Failure
	// Respond takes ownership of ans, which encode has let pass.
	Respond(ex *Exchange, ans *Response)
	Fail(ex *Exchange, f *fault.Failure)
	// OverShare tells, with memory short, that ex is to be refused for what its
	// caller holds.
	OverShare(ex *Exchange) bool
	// Listener is where its connection came in, and peer the other end's "ip:port".
	Listener() *Listener
	RemoteAddr() string
	// Finished tells that the last attempt of a withdrawn exchange has ended. It
	// is not called when cancel said that nothing was left at the application.
	Finished(ex *Exchange)
}

// Upstream carries attempts to one endpoint. It ends each with exactly one of
// Attempt.Answered, AnsweredLocally, failed and dropped, unless cancel or abort
// said that it is over. send may end the attempt before it returns.
type Upstream interface {
	Send(a *Attempt) // ends a, or gives it to a carrier, before it returns
	// Retire closes the upstream once what it carries has ended.
	Retire()
	// Connections counts open connections and dials in progress.
	Connections() int
	// Largest is the connection that holds the most, and how much that is in all and for each of its
	// requests; nil where each connection carries one request.
	Largest() (held, each int, h Holder)
}

// carrier is whoever has an attempt that was sent: a connection, or the queue for one.
type carrier interface {
	// Cancel withdraws a, whose request memory is not valid after the call. It
	// reports whether the endpoint may still be working on it.
	Cancel(a *Attempt) (lingers bool)
	// Abort forgets a at once.
	Abort(a *Attempt)
	// Buffered is how many bytes are held for a.
	Buffered(a *Attempt) int
}

// Holder is a connection that memory is held for.
type Holder interface {
	// ShedLargest gives up the request that holds the most, if that is LeastShed or
	// more and the connection can do without it.
	ShedLargest() bool
	// CloseNow closes the connection at once and gives up what it asked for, at the
	// applications too.
	CloseNow()
}

// LeastShed is the least that a connection must hold to be closed for it, while
// connections are few, and a request to be given up.
const LeastShed = 64 << 10

// Connector makes the upstreams of one protocol on one loop.
type Connector interface {
	Upstream(s *Service, e *Endpoint) Upstream
}

// Connection is how a loop connects to endpoints that speak a protocol.
type Connection struct {
	Connector
	Streams StreamAccess
	Opaque  bool // a service of the protocol takes streams of bytes, and no requests
}

// Connectors are those of one loop, by the protocol's name. The entry of the empty name
// is for endpoints whose protocol is not known.
type Connectors map[string]Connection

func (c Connectors) of(proto string) Connection {
	if by, ok := c[proto]; ok {
		return by
	}
	return c[""]
}

// StreamAccess is how a stream reaches an endpoint.
type StreamAccess uint8

const (
	streamPlain StreamAccess = iota // by a plain connection
	StreamLink                      // by a connection to a sidecar's link port, which expects the preface of a stream
	StreamNone                      // not at all
)
