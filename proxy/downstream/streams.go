package downstream

import (
	"net/netip"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// Streams carries what leaves the loops: what has no end that anybody could wait
// for, and what is too long to be held. proxy/stream implements it. Its methods
// do not block, and own what they are given.
type Streams interface {
	// Request takes over a client's connection with the request that it carried
	// last, and answers it whatever comes of it.
	Request(client loop.Socket, r *StreamRequest)

	// Answer takes over a client's connection to send the answer to its last
	// request.
	Answer(client loop.Socket, a *StreamAnswer)

	// Pass takes over a client's connection that was redirected to a listener on
	// its way to another address, to carry it there: first what it has sent
	// already, then all that comes, both ways and unchanged.
	Pass(listener string, client loop.Socket, to netip.AddrPort, first []byte)

	// Park keeps the body of an answer until the sidecar that asked comes for
	// it with the token. It does so for a few seconds; ok is false, and src
	// still the caller's, when too many wait.
	Park(src *exchange.StreamSource) (token link.Token, ok bool)

	// Accept takes over another sidecar's connection.
	Accept(peer loop.Socket, a *StreamAccept)
}

// StreamRequest is the last request of a client's connection. It owns its memory.
type StreamRequest struct {
	Kind    stats.StreamKind
	Leaser  exchange.Leaser // asked for the endpoint
	Service string
	Timeout time.Duration // of the answer's head, from the request's last byte on
	Head    []byte        // the request as the endpoint is to see it; empty if it can't be sent safely, and of a StreamConnect
	Minor   int           // of the client's version, HTTP/1.x
	ToHead  bool          // the request is a HEAD

	// Body decodes what is still to come of a StreamBody's body; it may be done.
	// Buffer, nil of other kinds, is what it decodes into, and holds what it has.
	Body   http1.Body
	Chunks bool // Head announces chunks, not a Content-Length
	Buffer *bytebufferpool.ByteBuffer
	Rest   []byte // what came behind that, as it came

	Record *accesslog.StreamRecord // to be ended with the request

	RequestID []byte
}

// AddVia adds to an answer that came straight from an application over
// HTTP/1.minor what its recipient is owed: Via, and date (the value of Date)
// where there is none.
func (r *StreamRequest) AddVia(resp *protocol.Response, minor int, date []byte) {
	hs := append(resp.Headers, protocol.Header{Name: protocol.NameVia, Value: protocol.ViaValues[minor&1]})
	if protocol.Find(hs, "date") == nil {
		hs = append(hs, protocol.Header{Name: protocol.NameDate, Value: date})
	}
	resp.Headers = hs
}

// AddRequestID adds the request's id to an answer that has none. A request that came
// from another sidecar has its id added there.
func (r *StreamRequest) AddRequestID(resp *protocol.Response) {
	if r.RequestID != nil && protocol.Find(resp.Headers, "x-request-id") == nil {
		resp.Headers = append(resp.Headers, protocol.Header{Name: protocol.NameRequestID, Value: r.RequestID})
	}
}

// AppendFailure appends the response that tells the client of f, the last one of
// its connection.
func (r *StreamRequest) AppendFailure(dst []byte, f *fault.Failure, date []byte) []byte {
	return AppendFailure(dst, f, date, r.RequestID, http1.ResponseFlags{Minor: r.Minor, Close: true, ToHead: r.ToHead})
}

// StreamAnswer is an answer whose body goes to its client as it comes. The
// connection closes after it.
type StreamAnswer struct {
	Head   []byte // goes first
	Chunks bool   // the body goes in chunks; else as it is
	Source *exchange.StreamSource
}

// StreamAccept is a stream that another sidecar has for a service of this one.
type StreamAccept struct {
	Leaser  exchange.Leaser // asked for the endpoint
	Service string
	Timeout time.Duration // of the endpoint's answer
	Stream  link.Stream
	Record  *accesslog.StreamRecord // to be ended with the stream
	Rest    []byte                  // what followed the preface
}
