package http

import (
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// passes reports whether the connection was redirected, and goes on unread with what no route takes. While
// routes have rules, a later request could go round them: then each request that no route takes goes on
// by itself, and nothing else does.
func (s *session) passes() bool { return s.redirected && !s.host.Router.Guarded }

// unrouted finds the route of the request whose head was decoded with err, and reports whether
// it has none. Input that is no request has no route, unless a request came before it: then
// the client speaks HTTP, and gets an error response.
func (s *session) unrouted(err error) bool {
	if err != nil && err != http1.ErrMessageTooLarge {
		return s.requests == 0
	}
	s.cur.Route = s.findRoute(s.cur, s.head.Minor)
	return s.cur.Route == nil
}

// queuePass makes the connection go on to its original destination with all input, once the
// client has read the responses to the requests before. Input is kept until then.
func (s *session) queuePass() {
	s.host.Pool.Recycle(s.cur)
	s.cur = nil
	s.input.become(inputHandoff)
	s.kind = stats.StreamPass
	s.stopTimeout()
	s.addCall(call{handoff: true, minor: 1, last: true})
}

func (s *session) passThrough(client loop.Socket) {
	first := s.in.B // Streams owns the array now
	s.in = nil
	s.close()
	s.host.Streams.Pass(s.origin.Listener.Name, client, s.outbound.Conn.OriginalDst(), first)
}

// alpnHTTP2 is the name of HTTP/2 in a TLS handshake (RFC 9113 section 3.2).
const alpnHTTP2 = "h2"

// beginsHTTP2 reports whether the input, which is no request, is the preface of HTTP/2 at the start of
// the connection.
func (s *session) beginsHTTP2() bool {
	return s.requests == 0 && s.tunnel == nil && downstream.BeginsHTTP2(s.in.B)
}

// becomeHTTP2 gives the connection to a session of HTTP/2, with the input and b, the rest of the read.
func (s *session) becomeHTTP2(b []byte) {
	in, conn := s.in, s.outbound.Conn
	s.in = nil
	s.close()
	s.outbound.Stop()
	s.host.OnClosed(s)
	next := s.handToHTTP2(conn)
	next.OnData(in.B)
	if len(b) > 0 {
		next.OnData(b)
	}
	s.host.Buffers.Release(&in)
}

// handToHTTP2 makes a session of HTTP/2 the stream of the connection.
func (s *session) handToHTTP2(c loop.Conn) loop.Stream {
	next := s.host.HTTP2(s.origin.Listener)
	c.SetStream(next)
	next.OnOpen(c)
	return next
}
