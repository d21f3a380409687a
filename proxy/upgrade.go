package proxy

import (
	"bytes"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/config"
)

// Streams carries what leaves the loops; proxy/stream implements it.
type Streams interface {
	// WebSocket takes over the client's connection, and answers the request
	// that u is about, whatever comes of it. It does not block.
	WebSocket(client Socket, u *Upgrade)
}

// Upgrade is a request for an upgrade that a client's connection carried last.
// It owns its memory.
type Upgrade struct {
	Worker  *Worker // whose Lease is to be asked for the endpoint
	Service string
	Timeout time.Duration // of the endpoint's answer
	Head    []byte        // the request as the endpoint is to see it; empty if it can't be sent safely
	Rest    []byte        // what the client has sent behind it

	requestID []byte
}

// SetStreams says who carries streams. It is called before any traffic; without
// it, wishes to upgrade are ignored, as RFC 9110 section 7.8 allows.
func (p *Process) SetStreams(s Streams) { p.streams = s }

// Record adds to the endpoint's answer, which came over HTTP/1.minor, what its
// client is owed: Via, the request's id, and date (the value of Date) where there
// is none.
func (u *Upgrade) Record(resp *protocol.Response, minor int, date []byte) {
	hs := append(resp.Headers, protocol.Header{Name: nameVia, Value: viaValues[minor&1]})
	if protocol.Find(hs, "date") == nil {
		hs = append(hs, protocol.Header{Name: nameDate, Value: date})
	}
	if protocol.Find(hs, "x-request-id") == nil {
		hs = append(hs, protocol.Header{Name: nameRequestID, Value: u.requestID})
	}
	resp.Headers = hs
}

// AppendFailure appends the response that tells the client of f, the last one of
// its connection.
func (u *Upgrade) AppendFailure(dst []byte, f *Failure, date []byte) []byte {
	return appendFailure(dst, f, date, u.requestID, http1.ResponseFlags{Minor: 1, Close: true})
}

// upgrade hands the connection over for a WebSocket if the request that the
// first n bytes of the input are asks for one and its service can be reached
// without a link in between. Otherwise nothing has changed, and the request is
// one like others: the server will say that it wants an upgrade.
func (s *httpSession) upgrade(n int) bool {
	w, req := s.w, &s.cur.req
	if w.proc.streams == nil || s.busy || len(s.calls) > 0 || s.last ||
		s.head.Framing != http1.NoBody || string(req.Method) != "GET" || s.crowded() {
		return false
	}
	r := s.direct
	if r == nil {
		r = w.routeOf(req)
	}
	if r == nil || !r.svc.takesBytes() {
		return false
	}
	client, err := s.conn.Detach()
	if err != nil {
		return false
	}
	arrive(s.cur, &s.origin, s.head.Minor)
	r.rewritePath(s.cur)
	u := &Upgrade{
		Worker: w, Service: r.svc.cfg.Name, Timeout: r.timeout,
		Head:      http1.AppendWebSocketRequest(nil, req),
		Rest:      bytes.Clone(s.in.B[n:]),
		requestID: bytes.Clone(s.cur.requestID),
	}
	s.close()
	w.proc.streams.WebSocket(client, u)
	return true
}

// takesBytes tells whether some endpoint is no sidecar's link port.
func (s *service) takesBytes() bool {
	for i := range s.set.Len() {
		if s.set.At(i).Ext.(*endpoint).protocol != config.ProtocolLink {
			return true
		}
	}
	return false
}
