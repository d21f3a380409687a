package http

import (
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

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
	s.timeout.Stop()
	s.calls = append(s.calls, call{handoff: true, minor: 1, last: true})
}

func (s *session) passThrough(client loop.Socket) {
	first := s.in.B // Streams owns the array now
	s.in = nil
	s.close()
	s.host.Streams.Pass(s.listener.Name, client, s.original, first)
}
