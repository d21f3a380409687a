package exchange

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

// StreamSource is where the body of an answer comes from. It has one owner, who
// passes it on or closes it.
type StreamSource struct {
	// Socket is the endpoint's connection. nil: the body is fetched from Addr,
	// the link port of an endpoint of Service, with Token and within Timeout.
	Socket  loop.Socket
	Addr    string
	Service string
	Token   link.Token
	Timeout time.Duration

	// Body decodes what is still to come, if it is not done, into Buffer, which
	// holds what is here and is never nil before Close.
	Body   http1.Body
	Buffer *bytebufferpool.ByteBuffer

	Lease  *Lease                  // connected
	Record *accesslog.StreamRecord // to be ended with the Lease
}

// unowned are the buffers of what has left its loop.
var unowned *protocol.Buffers

// Close gives the body up. Who was to get it sees it cut off.
func (s *StreamSource) Close() { s.end(accesslog.StreamEnd{Cut: true}) }

// Refuse gives the body up, in the place of which f is told.
func (s *StreamSource) Refuse(f *fault.Failure) { s.end(accesslog.StreamEnd{Failure: f}) }

func (s *StreamSource) end(e accesslog.StreamEnd) {
	if s.Socket != nil {
		s.Socket.Reset()
	}
	if s.Buffer != nil {
		unowned.Put(s.Buffer)
		s.Buffer = nil
	}
	s.Lease.Close(true, 0, 0)
	s.Record.End(e)
}
