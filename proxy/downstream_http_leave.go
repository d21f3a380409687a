package proxy

import (
	"bytes"
	"errors"

	"github.com/remora-proxy/remora/protocol/http1"
)

// streamOf tells whether the request whose head is here, decoded with err, is to
// leave the loop.
func (s *httpSession) streamOf(err error) (kind StreamKind, leaves bool) {
	long := err == http1.ErrMessageTooLarge
	switch {
	case !s.w.shared.streams, err != nil && !long:
		return 0, false
	case s.head.Connect:
		return StreamConnect, true
	case long:
		return StreamBody, true
	}
	// RFC 6455 section 4.1: a GET, and what had a body could not be joined.
	return StreamWebSocket, s.head.WebSocket && s.head.Framing == http1.NoBody && string(s.cur.req.Method) == "GET"
}

// leaveAtHead is leave for a request of which the first n bytes of the input are
// the head.
func (s *httpSession) leaveAtHead(kind StreamKind, n int) {
	ex := s.cur
	ex.head, s.in = s.in, nil
	s.keepInput(ex.head.B[n:])
	ex.head.B = ex.head.B[:n]
	if kind == StreamBody {
		s.body.Reset(&s.head, s.w.bodyLimits())
		ex.body = s.w.buffers.Get(0)
	}
	s.leave(kind)
}

// leave queues the request that is being received as the one with which the
// connection leaves the loop, once those before it are answered and the answers
// have left. What comes meanwhile is kept. No timeout runs for the client, who is
// not waited for: the deadlines of the requests before this one and the write
// timeout bound the wait.
func (s *httpSession) leave(kind StreamKind) {
	ex := s.cur
	s.cur = nil
	s.state, s.kind = httpLeaving, kind
	s.clock.stop()
	s.requests++
	ex.hold()
	if ex.route == nil {
		ex.route = s.routed(ex, s.head.Minor)
	}
	s.calls = append(s.calls, httpCall{
		ex: ex, leaves: true, minor: s.head.Minor, last: true, toHead: s.head.HeadMethod,
	})
	if f := s.mayLeave(ex); f != nil {
		s.stay(f)
	}
}

func (s *httpSession) mayLeave(ex *exchange) *Failure {
	switch {
	case s.door.limited(s.w.loop.Now()):
		return FailRateLimited
	case s.kind == StreamConnect && s.door.direct != nil:
		return FailUnsupported
	case ex.stopped != nil:
		return ex.stopped
	case ex.route == nil:
		return FailNoRoute
	case s.head.Length > http1.NoLimit: // its head would be with the application before that shows
		return requestFailure(http1.ErrMessageTooLarge)
	case s.kind == StreamConnect && s.head.Framing != http1.NoBody: // where would the tunnel begin?
		return FailBadRequest
	case s.kind != StreamBody && s.w.shared.draining.Load(): // it may last for hours
		return FailDraining
	case s.w.shared.budget.full(s.held + ex.held):
		return FailOverloaded
	}
	return nil
}

// stay has the request that was to leave refused in its turn.
func (s *httpSession) stay(f *Failure) {
	s.state = httpClosed
	s.dropInput()
	call := &s.calls[len(s.calls)-1]
	call.leaves, call.refuse = false, f
}

// keep adds to what came behind the request that is to leave. More than a
// message of it is refused: the loop can't stop reading.
func (s *httpSession) keep(b []byte) {
	kept := 0
	if s.in != nil {
		kept = len(s.in.B)
	}
	switch {
	case int64(kept+len(b)) > s.w.httpLimits.Message:
		s.stay(requestFailure(http1.ErrMessageTooLarge))
	case s.crowded():
		s.stay(FailOverloaded)
	default:
		s.input(b)
	}
}

// depart hands the connection over with its last request, whose turn it is. It
// tells whether there is nothing more to do; otherwise the connection can't
// leave, and the request is to be treated as where there are no streams.
func (s *httpSession) depart() bool {
	client, err := s.conn.Detach()
	switch {
	case err == nil && s.kind == StreamPass:
		s.handOn(client)
		return true
	case err == nil:
		s.w.stats.Left[s.kind]++
		r := s.streamRequest(s.calls[0].ex)
		s.close()
		s.w.streamer.Request(client, r)
		return true
	case err == ErrDetachClosed: // OnClose is to come
		return true
	case s.kind == StreamPass: // there are no words for it
		s.close()
		s.conn.Close()
		return true
	case !errors.Is(err, errors.ErrUnsupported): // the system has no descriptor left
		s.stay(FailOverloaded)
	case s.kind == StreamWebSocket: // the wish is ignored (RFC 9110 section 7.8)
		s.state = httpClosed
		s.dropInput()
		s.calls[0].leaves = false
	case s.kind == StreamConnect:
		s.stay(FailUnsupported)
	default:
		s.stay(requestFailure(http1.ErrMessageTooLarge))
	}
	return false
}

// streamRequest makes the request of ex one that owns its memory.
func (s *httpSession) streamRequest(ex *exchange) *StreamRequest {
	r := &StreamRequest{
		Kind: s.kind, Leaser: s.w.leaser, Service: ex.route.svc.cfg.Name, Timeout: ex.route.timeout,
		Minor: s.head.Minor, ToHead: s.head.HeadMethod, requestID: bytes.Clone(ex.requestID),
		Trail: logStream(&s.w.access, Departure(s.kind).String(), s, ex, ex.route.svc.cfg.Name),
	}
	switch s.kind {
	case StreamBody:
		r.Head = http1.AppendStreamRequest(nil, &ex.req, &s.head)
		r.Body, r.Chunks = s.body, s.head.Framing == http1.Chunked
		r.Buffer, ex.body = ex.body, nil
	case StreamWebSocket:
		r.Head = http1.AppendWebSocketRequest(nil, &ex.req)
	}
	if s.in != nil {
		r.Rest, s.in = s.in.B, nil // the array is the request's now
	}
	return r
}
