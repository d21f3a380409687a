package http

import (
	"bytes"
	"errors"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// streamOf tells whether the request whose head is here, decoded with err, is to
// leave the loop.
func (s *session) streamOf(err error) (kind stats.StreamKind, leaves bool) {
	long := err == http1.ErrMessageTooLarge
	switch {
	case !s.host.Process.Streams, err != nil && !long:
		return 0, false
	case s.head.Connect:
		return stats.StreamConnect, true
	case long:
		return stats.StreamBody, true
	}
	// RFC 6455 section 4.1: a GET, and what had a body could not be joined.
	return stats.StreamWebSocket, s.head.WebSocket && s.head.Framing == http1.NoBody && string(s.cur.Request.Method) == "GET"
}

// queueHandoffAtHead is leave for a request of which the first n bytes of the input are
// the head.
func (s *session) queueHandoffAtHead(kind stats.StreamKind, n int) {
	ex := s.cur
	ex.HeadBuffer, s.in = s.in, nil
	s.keepInput(ex.HeadBuffer.B[n:])
	ex.HeadBuffer.B = ex.HeadBuffer.B[:n]
	if kind == stats.StreamBody {
		s.body.Reset(&s.head, s.host.BodyLimits())
		ex.BodyBuffer = s.host.Buffers.Get(0)
	}
	s.queueHandoff(kind)
}

// queueHandoff queues the request that is being received as the one with which the
// connection leaves the loop, once those before it are answered and the answers
// have left. What comes meanwhile is kept. No timeout runs for the client, who is
// not waited for: the deadlines of the requests before this one and the write
// timeout bound the wait.
func (s *session) queueHandoff(kind stats.StreamKind) {
	ex := s.cur
	s.cur = nil
	s.input.become(inputHandoff)
	s.kind = kind
	s.timeout.Stop()
	s.requests++
	ex.Hold()
	if ex.Route == nil {
		ex.Route = s.routed(ex, s.head.Minor)
	}
	s.calls = append(s.calls, call{
		ex: ex, handoff: true, minor: s.head.Minor, last: true, toHead: s.head.HeadMethod,
	})
	if f := s.checkHandoff(ex); f != nil {
		s.refuseHandoff(f)
	}
}

func (s *session) checkHandoff(ex *exchange.Exchange) *fault.Failure {
	switch {
	case s.listener.Limited(s.host.Loop.Now()):
		return fault.RateLimited
	case s.kind == stats.StreamConnect && s.listener.Direct != nil:
		return fault.Unsupported
	case ex.Refusal != nil:
		return ex.Refusal
	case ex.Route == nil:
		return fault.NoRoute
	case s.head.Length > protocol.NoLimit: // its head would be with the application before that shows
		return fault.OfRequest(http1.ErrMessageTooLarge)
	case s.kind == stats.StreamConnect && s.head.Framing != http1.NoBody: // where would the tunnel begin?
		return fault.BadRequest
	case s.kind != stats.StreamBody && s.host.Process.Draining.Load(): // it may last for hours
		return fault.Draining
	case s.host.Process.Budget.Full(s.held + ex.Held):
		return fault.Overloaded
	}
	return nil
}

// refuseHandoff has the request that was to leave refused in its turn.
func (s *session) refuseHandoff(f *fault.Failure) {
	s.input.become(inputClosed)
	s.dropInput()
	call := &s.calls[len(s.calls)-1]
	call.handoff, call.refuse = false, f
}

// keep adds to what came behind the request that is to leave. More than a
// message of it is refused: the loop can't stop reading.
func (s *session) keep(b []byte) {
	kept := 0
	if s.in != nil {
		kept = len(s.in.B)
	}
	switch {
	case int64(kept+len(b)) > s.host.MessageLimits.Message:
		s.refuseHandoff(fault.OfRequest(http1.ErrMessageTooLarge))
	case s.overBudget():
		s.refuseHandoff(fault.Overloaded)
	default:
		s.appendInput(b)
	}
}

// handOff hands the connection over with its last request, whose turn it is. It
// tells whether there is nothing more to do; otherwise the connection can't
// leave, and the request is to be treated as where there are no streams.
func (s *session) handOff() bool {
	client, err := s.conn.Detach()
	switch {
	case err == nil && s.kind == stats.StreamPass:
		s.passThrough(client)
		return true
	case err == nil:
		s.host.Stats.Handoffs[s.kind]++
		r := s.streamRequest(s.calls[0].ex)
		s.close()
		s.host.Streams.Request(client, r)
		return true
	case err == loop.ErrDetachClosed: // OnClose is to come
		return true
	case s.kind == stats.StreamPass: // there are no words for it
		s.close()
		s.conn.Close()
		return true
	case !errors.Is(err, errors.ErrUnsupported): // the system has no descriptor left
		s.refuseHandoff(fault.Overloaded)
	case s.kind == stats.StreamWebSocket: // the wish is ignored (RFC 9110 section 7.8)
		s.input.become(inputClosed)
		s.dropInput()
		s.calls[0].handoff = false
	case s.kind == stats.StreamConnect:
		s.refuseHandoff(fault.Unsupported)
	default:
		s.refuseHandoff(fault.OfRequest(http1.ErrMessageTooLarge))
	}
	return false
}

// streamRequest makes the request of ex one that owns its memory.
func (s *session) streamRequest(ex *exchange.Exchange) *downstream.StreamRequest {
	r := &downstream.StreamRequest{
		Kind: s.kind, Leaser: s.host.Leaser, Service: ex.Route.Service.Config.Name, Timeout: ex.Route.Timeout,
		Minor: s.head.Minor, ToHead: s.head.HeadMethod, RequestID: bytes.Clone(ex.RequestID),
		Record: exchange.LogStream(&s.host.AccessLog, stats.Handoff(s.kind).String(), s, ex, ex.Route.Service.Config.Name),
	}
	switch s.kind {
	case stats.StreamBody:
		r.Head = http1.AppendStreamRequest(nil, &ex.Request, &s.head)
		r.Body, r.Chunks = s.body, s.head.Framing == http1.Chunked
		r.Buffer, ex.BodyBuffer = ex.BodyBuffer, nil
	case stats.StreamWebSocket:
		r.Head = http1.AppendWebSocketRequest(nil, &ex.Request)
	}
	if s.in != nil {
		r.Rest, s.in = s.in.B, nil // the array is the request's now
	}
	return r
}
