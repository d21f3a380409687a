package link

import (
	"bytes"
	"errors"
	"time"

	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// replyStream answers with ans, whose body the other sidecar fetches over a
// connection of its own. When too many wait for that, it is told that the answer is
// too long for a message.
func (s *session) replyStream(ex *exchange.Exchange, ans *exchange.Response) {
	src := ans.TakeSource()
	var ok bool
	if ans.Token, ok = s.host.Streams.Park(src); !ok {
		src.Refuse(fault.ResponseTooLarge)
		ans.Release()
		s.host.Stats.Failed(fault.ResponseTooLarge)
		s.Writer.Refused(ex.StreamID, fault.ResponseTooLarge.Reason())
		return
	}
	s.host.Stats.Handoffs[stats.HandoffParked]++
	ans.StreamToken = ans.Token[:]
	ans.Hold()
	s.Writer.Response(ex.StreamID, &ans.Response, ans.Codec, ans)
}

// OnStream: the connection carries a stream, and leaves the loop with it.
func (s *session) OnStream(st link.Stream, rest []byte) {
	w := s.host
	if f := s.checkStream(&st); f != nil {
		s.refuseStream(&st, f)
		return
	}
	peer, err := s.Transport.Detach()
	switch {
	case err == nil:
	case err == loop.ErrDetachClosed: // OnClose is to come
		return
	case errors.Is(err, errors.ErrUnsupported):
		s.refuseStream(&st, fault.Unsupported)
		return
	default: // the system has no descriptor left
		s.refuseStream(&st, fault.Overloaded)
		return
	}
	s.close()
	w.Stats.Handoffs[stats.HandoffAccepted]++
	a := &downstream.StreamAccept{
		Leaser: w.Leaser, Service: s.listener.Direct.Service.Config.Name, Timeout: s.streamTimeout(&st), Stream: st, Rest: bytes.Clone(rest),
	}
	if st.Kind != link.StreamAnswer { // of a request that has its own
		a.Record = exchange.LogStream(&w.AccessLog, accesslog.StreamOpaque, s, nil, a.Service)
	}
	w.Streams.Accept(peer, a)
}

// checkStream applies the limits of listener and process. What fetches the rest of an
// answer is part of a request that has passed them.
func (s *session) checkStream(st *link.Stream) *fault.Failure {
	switch {
	case !s.host.Process.Streams:
		return fault.Unsupported
	case st.Kind == link.StreamAnswer:
		return nil
	case s.host.Process.Draining.Load():
		return fault.Draining
	case s.opaque() && st.Kind == link.StreamHTTP:
		return fault.NoRoute
	case s.listener.Limited(s.host.Loop.Now()):
		return fault.RateLimited
	case s.host.Process.Budget.Full(s.Held):
		return fault.Overloaded
	}
	return nil
}

// streamTimeout is how long the endpoint may take: as long as the other sidecar waits,
// but not longer than for any request.
func (s *session) streamTimeout(st *link.Stream) time.Duration {
	if st.TimeLeft == 0 {
		return s.listener.Direct.Timeout
	}
	return min(st.TimeLeft, s.listener.Direct.Timeout)
}

// refuseStream tells why a stream is not taken, in the words of its kind.
func (s *session) refuseStream(st *link.Stream, f *fault.Failure) {
	s.host.Stats.Failed(f)
	exchange.LogRefused(&s.host.AccessLog, s, nil, f)
	out := []byte{byte(f.Reason())}
	if st.Kind == link.StreamHTTP {
		out = downstream.AppendFailure(nil, f, s.host.DateValue(), nil, http1.ResponseFlags{Minor: 1, Close: true})
	}
	s.Transport.Write(out)
	s.Transport.Drain()
	s.close()
}
