package proxy

import (
	"bytes"

	"github.com/remora-proxy/remora/protocol/http1"
)

// leave hands the connection over with the request whose head is the first n
// bytes of the input. Otherwise nothing has changed.
func (s *httpSession) leave(kind StreamKind, n int) bool {
	w, req := s.w, &s.cur.req
	if w.proc.streams == nil || s.busy || len(s.calls) > 0 || s.last ||
		s.head.Framing != http1.NoBody || string(req.Method) != "GET" || s.crowded() {
		return false
	}
	r := s.direct
	if r == nil {
		r = w.routeOf(req)
	}
	if r == nil {
		return false
	}
	client, err := s.conn.Detach()
	if err != nil {
		return false
	}
	arrive(s.cur, &s.origin, s.head.Minor)
	r.rewritePath(s.cur)
	u := &StreamRequest{
		Kind: kind, Worker: w, Service: r.svc.cfg.Name, Timeout: r.timeout, Minor: s.head.Minor,
		Head:      http1.AppendWebSocketRequest(nil, req),
		Rest:      bytes.Clone(s.in.B[n:]),
		requestID: bytes.Clone(s.cur.requestID),
	}
	s.close()
	w.proc.streams.Request(client, u)
	return true
}
