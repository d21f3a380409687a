package http

import (
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/loop"
)

// alpnHTTP2 is the name of HTTP/2 in a TLS handshake (RFC 9113 section 3.2).
const alpnHTTP2 = "h2"

// beginsHTTP2 reports whether the input, which is no request, is the preface of HTTP/2 at the start of
// the connection.
func (s *session) beginsHTTP2() bool {
	return s.input.untouched() && !s.tunnel.opened() && downstream.BeginsHTTP2(s.input.bytes())
}

// becomeHTTP2 gives the connection to a session of HTTP/2, with the input and b, the rest of the read.
func (s *session) becomeHTTP2(b []byte) {
	in, conn := s.input.takeBuffer(), s.outbound.Conn
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

// handToHTTP2 makes an HTTP/2 session the stream of the connection.
func (s *session) handToHTTP2(c loop.Conn) loop.Receiver {
	next := s.host.HTTP2(s.origin.Listener)
	c.SetReceiver(next)
	next.OnOpen(c)
	return next
}
