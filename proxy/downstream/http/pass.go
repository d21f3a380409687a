package http

import (
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// unrouted finds the route of the request whose head is here, decoded with err,
// and tells whether it has none. What is no request has none either, unless one
// that had came before it: then the client speaks HTTP, and is told its mistake.
func (s *session) unrouted(err error) bool {
	if err != nil && err != http1.ErrMessageTooLarge {
		return s.requests == 0
	}
	s.cur.Route = s.routed(s.cur, s.head.Minor)
	return s.cur.Route == nil
}

// pass has the connection go on to its original destination with all that is in
// the input, once the requests before that are answered and the answers have
// left. What comes meanwhile is kept.
func (s *session) pass() {
	s.host.Pool.Recycle(s.cur)
	s.cur = nil
	s.input.become(inputHandoff)
	s.kind = stats.StreamPass
	s.timeout.Stop()
	s.calls = append(s.calls, call{handoff: true, minor: 1, last: true})
}

// passThrough gives the connection, detached as client, away.
func (s *session) passThrough(client loop.Socket) {
	first := s.in.B // the array is the stream's now
	s.in = nil
	s.close()
	s.host.Streams.Pass(s.listener.Name, client, s.original, first)
}
