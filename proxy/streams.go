package proxy

import (
	"net/netip"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
)

// Streams carries what leaves the loops: what has no end that anybody could wait
// for, and what is too long to be held. proxy/stream implements it. Its methods
// do not block, and own what they are given.
type Streams interface {
	// Request takes over a client's connection with the request that it carried
	// last, and answers it whatever comes of it.
	Request(client Socket, r *StreamRequest)

	// Answer takes over a client's connection to send the answer to its last
	// request.
	Answer(client Socket, a *StreamAnswer)

	// Pass takes over a client's connection that was redirected to a listener on
	// its way to another address, to carry it there: first what it has sent
	// already, then all that comes, both ways and unchanged.
	Pass(listener string, client Socket, to netip.AddrPort, first []byte)

	// Park keeps the body of an answer until the sidecar that asked comes for
	// it with the token. It does so for a few seconds; ok is false, and src
	// still the caller's, when too many wait.
	Park(src *StreamSource) (token link.Token, ok bool)

	// Accept takes over another sidecar's connection.
	Accept(peer Socket, a *StreamAccept)
}

// StreamKind is what a client's connection turns into.
type StreamKind uint8

const (
	// StreamBody is a request with a body too long to be held, and its answer.
	StreamBody StreamKind = iota
	// StreamWebSocket is a request to upgrade to WebSocket.
	StreamWebSocket
	// StreamConnect is a CONNECT: bytes to an endpoint of the service and back.
	StreamConnect
	// StreamPass is no request: bytes to where the client meant its connection
	// to go, and back.
	StreamPass
)

// StreamRequest is the last request of a client's connection. It owns its memory.
type StreamRequest struct {
	Kind    StreamKind
	Leaser  Leaser // asked for the endpoint
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

	Trail *Trail // to be ended with the request

	requestID []byte
}

// Record adds to an answer that came straight from an application over
// HTTP/1.minor what its recipient is owed: Via, and date (the value of Date)
// where there is none.
func (r *StreamRequest) Record(resp *protocol.Response, minor int, date []byte) {
	hs := append(resp.Headers, protocol.Header{Name: nameVia, Value: viaValues[minor&1]})
	if protocol.Find(hs, "date") == nil {
		hs = append(hs, protocol.Header{Name: nameDate, Value: date})
	}
	resp.Headers = hs
}

// Identify adds the request's id to an answer that has none. A request that came
// from another sidecar has its id added there.
func (r *StreamRequest) Identify(resp *protocol.Response) {
	if r.requestID != nil && protocol.Find(resp.Headers, "x-request-id") == nil {
		resp.Headers = append(resp.Headers, protocol.Header{Name: nameRequestID, Value: r.requestID})
	}
}

// AppendFailure appends the response that tells the client of f, the last one of
// its connection.
func (r *StreamRequest) AppendFailure(dst []byte, f *Failure, date []byte) []byte {
	return appendFailure(dst, f, date, r.requestID, http1.ResponseFlags{Minor: r.Minor, Close: true, ToHead: r.ToHead})
}

// StreamAnswer is an answer whose body goes to its client as it comes. The
// connection closes after it.
type StreamAnswer struct {
	Head   []byte // goes first
	Chunks bool   // the body goes in chunks; else as it is
	Source *StreamSource
}

// unowned are the buffers of what has left its loop.
var unowned *protocol.Buffers

// StreamSource is where the body of an answer comes from. It has one owner, who
// passes it on or closes it.
type StreamSource struct {
	// Socket is the endpoint's connection. nil: the body is fetched from Addr,
	// the link port of an endpoint of Service, with Token and within Timeout.
	Socket  Socket
	Addr    string
	Service string
	Token   link.Token
	Timeout time.Duration

	// Body decodes what is still to come, if it is not done, into Buffer, which
	// holds what is here and is never nil before Close.
	Body   http1.Body
	Buffer *bytebufferpool.ByteBuffer

	Lease *Lease // connected
	Trail *Trail // to be ended with the Lease
}

// Close gives the body up. Who was to get it sees it cut off.
func (s *StreamSource) Close() { s.end(StreamEnd{Cut: true}) }

// Refuse gives the body up, in the place of which f is told.
func (s *StreamSource) Refuse(f *Failure) { s.end(StreamEnd{Failure: f}) }

func (s *StreamSource) end(e StreamEnd) {
	if s.Socket != nil {
		s.Socket.Reset()
	}
	if s.Buffer != nil {
		unowned.Put(s.Buffer)
		s.Buffer = nil
	}
	s.Lease.Close(true, 0, 0)
	s.Trail.End(e)
}

// StreamAccept is a stream that another sidecar has for a service of this one.
type StreamAccept struct {
	Leaser  Leaser // asked for the endpoint
	Service string
	Timeout time.Duration // of the endpoint's answer
	Stream  link.Stream
	Trail   *Trail // to be ended with the stream
	Rest    []byte // what followed the preface
}
