package http2

import (
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/race"
)

var _ exchange.Caller = (*session)(nil)

// Encode implements exchange.Caller. The head of a stream is in the loop's scratch memory until
// Respond.
func (s *session) Encode(ex *exchange.Exchange, res *race.Response) *fault.Failure {
	res.Own()
	downstream.AddRequestID(&res.Response, ex.RequestID)
	if ex.Route.Edits != nil {
		downstream.EditResponse(ex, &res.Response, &s.origin)
	}
	if res.Source == nil {
		return nil
	}
	head := res.StreamHead()
	s.host.Scratch = http1.AppendStreamResponse(s.host.Scratch[:0], &res.Response, &head, 1)
	if len(s.host.Scratch) == 0 {
		return fault.Malformed
	}
	return nil
}

func (s *session) Respond(ex *exchange.Exchange, res *race.Response) {
	c := s.calls[ex.CallIndex]
	c.ex = nil
	if res.Source != nil {
		c.respondStream(res)
		return
	}
	res.Batch = ex.Request.Batch
	c.respond(&res.Response, res)
}

// respond sends a whole response. The codec keeps the head's bytes, and the owner's body until it is
// sent.
func (c *call) respond(res *protocol.Response, owner http2.Releaser) {
	s := c.session
	c.become(sending)
	s.answered = true
	s.codec.Respond(c.stream, res, owner)
	c.heard, c.unsent = s.host.Loop.Now(), c.stream.Unsent()
	s.schedule(len(s.calls) == 1 || s.codec.Encoded() >= mux.BatchSize) // much counts before the turn ends
}

var _ exchange.InterimCaller = (*session)(nil)

// Interim implements exchange.InterimCaller.
func (s *session) Interim(ex *exchange.Exchange, res *protocol.Response) {
	if s.codec.Encoded() <= mux.MaxOutbound {
		s.codec.Interim(s.calls[ex.CallIndex].stream, res)
		s.schedule(len(s.calls) == 1)
	}
}

// Fail implements exchange.Caller.
func (s *session) Fail(ex *exchange.Exchange, f *fault.Failure) {
	if f == fault.NoRoute && ex.Route == nil { // not a refusal of the other sidecar
		f = downstream.NoRouteFor(&ex.Request)
	}
	s.calls[ex.CallIndex].respondFailure(ex, f)
}

// Concurrency implements exchange.Caller. Cancelled requests count for as long as the application works on them. Streams
// that have left the loop do not count.
func (s *session) Concurrency(ex *exchange.Exchange, most int) int {
	return ex.WithOthers(most, func(yield func(*exchange.Exchange) bool) {
		for _, c := range s.calls {
			if !yield(c.ex) {
				return
			}
		}
		for _, ex := range s.cancelled {
			if !yield(ex) {
				return
			}
		}
	})
}

// keepCancelled keeps a request that the client has cancelled until Finished.
func (s *session) keepCancelled(ex *exchange.Exchange) {
	ex.CallIndex = len(s.cancelled)
	s.cancelled = append(s.cancelled, ex)
}

// Finished implements exchange.Caller. The client has forgotten the request. The last one
// of those that are cancelled gets its place.
func (s *session) Finished(ex *exchange.Exchange) {
	last := len(s.cancelled) - 1
	s.cancelled[ex.CallIndex] = s.cancelled[last]
	s.cancelled[ex.CallIndex].CallIndex = ex.CallIndex
	s.cancelled[last] = nil
	s.cancelled = s.cancelled[:last]
}

// respondFailure responds to ex with f. A caller of gRPC gets it as a status.
func (c *call) respondFailure(ex *exchange.Exchange, f *fault.Failure) {
	c.ex = nil
	var res protocol.Response
	if protocol.IsGRPC(ex.Request.Headers) {
		res = downstream.GRPCFailure(f, ex.RequestID)
	} else {
		res = downstream.FailureResponse(nil, f, c.session.host.DateValue(), ex.RequestID)
	}
	c.respond(&res, nil)
}

// OnSent implements http2.Handler: the client gets the whole response. It need not send the rest of
// its request.
func (e *events) OnSent(st *http2.Stream) {
	c := st.Owner.(*call)
	if !st.Ended() {
		e.codec.Reset(st, http2.NoError)
	}
	c.over()
}
