package http

import (
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/loop"
)

// alpnHTTP2 is the name of HTTP/2 in a TLS handshake (RFC 9113 section 3.2).
const alpnHTTP2 = "h2"

// switching gives the connection of a client that speaks HTTP/2 to a session of that.
//
// Calls in: the session or input finds out what the client speaks (hand, begins, become).
//
// Calls out: the ending closes this session. The other one gets what input has kept.
type switching struct{ *session }

func (s *session) switching() switching { return switching{s} }

// begins reports whether the input, which is no request, is the preface of HTTP/2 at the start of
// the connection.
func (s switching) begins() bool {
	return s.input.untouched() && !s.tunnel.opened() && downstream.BeginsHTTP2(s.input.bytes())
}

// become gives the connection to a session of HTTP/2, with the input and b, the rest of the read.
func (s switching) become(b []byte) {
	in, conn := s.input.takeBuffer(), s.outbound.Conn
	s.ending().close()
	s.outbound.Stop()
	s.host.OnClosed(s.session)
	next := s.hand(conn)
	next.OnData(in.B)
	if len(b) > 0 {
		next.OnData(b)
	}
	s.host.Buffers.Release(&in)
}

// hand makes an HTTP/2 session the receiver of the connection.
func (s switching) hand(c loop.Conn) loop.Receiver {
	next := s.host.HTTP2(s.origin.Listener)
	c.SetReceiver(next)
	next.OnOpen(c)
	return next
}
