package downstream

import (
	"net/netip"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/internal/hostname"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/allow"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/identity"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// Streams carries messages off the loops: those that may never end, or are too long to be
// buffered. proxy/stream implements it. Its methods don't block, and own their arguments.
type Streams interface {
	// Request takes over a client's connection with its last request, and always responds.
	Request(client loop.Socket, r *StreamRequest)

	// Answer takes over a client's connection to send the response to its last request.
	Answer(client loop.Socket, a *StreamAnswer)

	// Pass takes over a redirected client's connection, and connects it to its original
	// destination. It sends first, the bytes already received, and then copies both ways.
	Pass(listener string, client loop.Socket, to netip.AddrPort, first []byte)

	// Park keeps the body of a response for a few seconds, until the requesting sidecar fetches
	// it with the token. from is who asked for the response. ok is false if too many of its responses are
	// parked: src stays the caller's then.
	Park(src *race.StreamSource, from shard.Client) (token link.Token, ok bool)

	// Accept takes over a connection of another sidecar that carries a stream.
	Accept(peer loop.Socket, a *StreamAccept)

	// NewPipe is a shard.PipeMaker.
	NewPipe(l loop.Loop, remote string, ready func()) (loop.Pipe, loop.Socket)
}

// Connected is the response to a CONNECT (RFC 9110 section 9.3.6).
const Connected = "HTTP/1.1 200 OK\r\n\r\n"

// MaxUpgradeBody is the longest body, in bytes, of a request to upgrade that is passed on as such. Sockets take so
// much from us although the application reads nothing.
const MaxUpgradeBody = 64 << 10

// StreamRequest is the last request of a client's connection. It owns its memory.
type StreamRequest struct {
	Kind     stats.StreamKind
	Opener   race.Opener // gives the endpoint
	Service  string
	Unrouted *Unrouted     // where the request goes instead of to Service; nil means to Service
	Host     string        // of the request, in its canonical form, if the TLS of the service needs it; else ""
	Timeout  time.Duration // from the last byte of the request to the head of the response
	Repeats  int           // how often it may be sent again although an endpoint may have seen it
	Head     []byte        // of the request, as it is sent; empty for a StreamConnect, and if it can't be sent safely
	Minor    int           // of the client's version, HTTP/1.x
	ToHead   bool          // the request is a HEAD
	Opened   bool          // Connected was sent, so no response can report a failure

	Protocols []byte // that a StreamWebSocket asks to upgrade to, as in the Upgrade field; nil for other kinds

	// Body decodes the rest of the body of a StreamBody; it may be done. Buffer has the
	// part that was decoded, and takes the rest. It is nil for other kinds.
	Body     http1.Body
	Continue bool // the client waits for a 100 Continue before it sends the body
	Chunks   bool // Head announces chunks, not a Content-Length
	Buffer   *bytebufferpool.ByteBuffer
	Rest     []byte // undecoded bytes that followed

	Record *accesslog.StreamRecord // ends with the request

	Trailers func([]protocol.Header) []protocol.Header // returns those that the client may send; nil means without our own

	Edit func(*protocol.Response) // changes the response as the route says; nil means that nothing changes

	Interactive bool // both sides talk, and may pause: see protocol.Interactive
	GRPC        bool // it is a gRPC call

	RequestID []byte // nil if another sidecar sent the request: it adds the id to the response
}

// Unrouted is where a request without a route goes: to the host that it names, or to the original
// destination of its connection.
type Unrouted struct {
	Listener  string         // whose settings say what may be reached
	Authority string         // "host:port" or "host"
	To        netip.AddrPort // that original destination; the zero value means to Authority
}

// SetHost keeps the host of the request for the TLS of its service c.
func (r *StreamRequest) SetHost(c *config.Service, authority []byte) {
	if c.TLS.ByHost() {
		var buf hostname.Buffer
		r.Host = string(hostname.Bare(hostname.Of(&buf, authority)))
	}
}

// AppendFailure appends a response with the failure f, the last one of the connection.
func (r *StreamRequest) AppendFailure(dst []byte, f *fault.Failure, date []byte) []byte {
	return AppendFailure(dst, f, date, r.RequestID, http1.ResponseFlags{Minor: r.Minor, Close: true, ToHead: r.ToHead})
}

// StreamAnswer is the last response of a connection, whose body is sent as it arrives.
type StreamAnswer struct {
	Head   []byte // encoded, to be sent first
	Chunks bool   // the body is sent in chunks
	Source *race.StreamSource
	Opener race.Opener // counts a failure before the source is asked
}

// StreamAccept is a stream from another sidecar to a service of this one.
type StreamAccept struct {
	Opener  race.Opener  // gives the endpoint
	Client  shard.Client // of Opener
	Service string
	Timeout time.Duration // of the endpoint's response
	Stream  link.Stream
	Record  *accesslog.StreamRecord // ends with the stream; nil for a link.StreamAnswer
	Rest    []byte                  // bytes that followed the preface

	Rules allow.Rules     // for the head of a link.StreamHTTP
	Peer  *identity.Names // of the other sidecar; nil means none was proved
}
