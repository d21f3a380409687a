package proxy

import "github.com/remora-proxy/remora/protocol/http1"

// unrouted finds the route of the request whose head is here, decoded with err,
// and tells whether it has none. What is no request has none either, unless one
// that had came before it: then the client speaks HTTP, and is told its mistake.
func (s *httpSession) unrouted(err error) bool {
	if err != nil && err != http1.ErrMessageTooLarge {
		return s.requests == 0
	}
	s.cur.route = s.routed(s.cur, s.head.Minor)
	return s.cur.route == nil
}

// pass has the connection go on to its original destination with all that is in
// the input, once the requests before that are answered and the answers have
// left. What comes meanwhile is kept.
func (s *httpSession) pass() {
	s.w.pool.recycle(s.cur)
	s.cur = nil
	s.state, s.kind = httpLeaving, StreamPass
	s.clock.stop()
	s.calls = append(s.calls, httpCall{leaves: true, minor: 1, last: true})
}

// handOn gives the connection, detached as client, away.
func (s *httpSession) handOn(client Socket) {
	first := s.in.B // the array is the stream's now
	s.in = nil
	s.close()
	s.w.streamer.Pass(s.door.name, client, s.original, first)
}
