package race

import (
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
)

// How long a message may be incomplete before it becomes a stream: a request since its last part, a response since its
// head. A gRPC call may be a conversation, so the other side must hear each message: there both count since the last
// part.
const (
	StreamAfter     = 100 * time.Millisecond
	GRPCStreamAfter = 5 * time.Millisecond
)

// StreamSource is where a response's body comes from. Its owner passes it on or closes it.
type StreamSource struct {
	// Socket is the connection to Addr, an endpoint of Service. If it is nil, the body is fetched
	// from there, a link port, with Token and within Timeout.
	Socket  loop.Socket
	Addr    string
	Service string
	Token   link.Token
	Timeout time.Duration

	// Body decodes the rest of the body, unless it is done, into Buffer, which holds
	// what has arrived. Buffer is not nil before Close.
	Body   http1.Body
	Buffer *bytebufferpool.ByteBuffer

	Interactive bool // the response is part of a conversation: it needs no pace

	Stream *Stream                 // Connected was called
	Record *accesslog.StreamRecord // ends with the Stream
}

// Close discards the body; its reader sees a truncated stream.
func (s *StreamSource) Close() { s.end(accesslog.StreamEnd{Cut: true}) }

// Refuse discards the body; the caller gets f instead.
func (s *StreamSource) Refuse(f *fault.Failure) {
	s.Stream.NoteCode(f.GRPC(), false)
	s.end(accesslog.StreamEnd{Failure: f})
}

func (s *StreamSource) end(e accesslog.StreamEnd) {
	if s.Socket != nil {
		s.Socket.Reset()
	}
	protocol.Unowned().Release(&s.Buffer)
	if s.Stream.Call() {
		e.GRPC, e.Code = true, s.Stream.code
	}
	s.Stream.Close(true, 0, 0)
	s.Record.End(e)
}
