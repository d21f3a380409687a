package link

import (
	"bytes"
	"errors"
	"time"

	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/allow"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// respondStream sends the head of a response whose body is a stream. The other sidecar fetches
// the body over a connection of its own. When too many bodies wait for that, the request is
// refused as one whose response is too long for a message.
func (s *session) respondStream(ex *exchange.Exchange, res *race.Response) {
	src := res.TakeSource()
	var ok bool
	if res.Token, ok = s.host.Streams.Park(src, ex.Client()); !ok {
		src.Refuse(fault.ResponseTooLarge)
		res.Release()
		shard.ReportStream(s.host.Shard, exchange.ClientOf(s), s.serviceName(), fault.ResponseTooLarge)
		s.Writer.Refused(ex.StreamID, fault.ResponseTooLarge.Reason())
		return
	}
	s.host.Stats.Handoffs[stats.HandoffParked]++
	res.StreamToken = res.Token[:]
	res.Charge()
	s.Writer.Response(ex.StreamID, &res.Response, res.Codec, res)
}

// OnStream takes the connection, which carries a stream, off the loop.
func (s *session) OnStream(st link.Stream, rest []byte) {
	h := s.host
	if f := s.checkStream(&st); f != nil {
		s.refuseStream(&st, f)
		return
	}
	names := s.PeerNames() // they leave with the connection
	peer, err := s.Transport.Detach()
	switch {
	case err == nil:
	case err == loop.ErrDetachClosed: // OnClose follows
		return
	case errors.Is(err, errors.ErrUnsupported):
		s.refuseStream(&st, fault.Unsupported)
		return
	default: // the system has no descriptor left
		s.refuseStream(&st, fault.Overloaded)
		return
	}
	s.close()
	h.Stats.Handoffs[stats.HandoffAccepted]++
	client := exchange.ClientOf(s)
	a := &downstream.StreamAccept{
		Opener: h.Opener.From(client), Client: client, Service: s.serviceName(),
		Timeout: s.streamTimeout(&st), Stream: st, Rest: bytes.Clone(rest),
	}
	if st.Kind == link.StreamHTTP {
		a.Rules, a.Peer = s.listener.Rules(s.listener.Fixed), names
	}
	if st.Kind != link.StreamAnswer { // its request has a record
		a.Record = exchange.LogStream(&h.AccessLog, accesslog.StreamOpaque, s, nil, a.Service)
	}
	h.Streams.Accept(peer, a)
}

// checkStream applies the limits of the listener and of the process. A stream that fetches the
// body of a response is exempt: its request has passed them.
func (s *session) checkStream(st *link.Stream) *fault.Failure {
	switch {
	case !s.host.Process.Streams:
		return fault.Unsupported
	case st.Kind == link.StreamAnswer:
		return nil
	case s.host.Process.Draining.Load():
		return fault.Draining
	case st.Kind == link.StreamHTTP && s.opaque(), st.Kind == link.StreamOpaque && !s.takesOpaque():
		return fault.NoRoute
	case exchange.Limited(s.listener.Rate, s.host.Loop.Now(), s, nil): // its head comes later
		return fault.RateLimited
	}
	f := s.host.CheckStream(s.Account.Messages(), false)           // draining came first
	if f == nil && st.Kind == link.StreamOpaque && s.forbidden() { // the head of another says what it calls
		f = fault.NotAllowed
	}
	return f
}

// forbidden reports whether the rules refuse a stream of bytes.
func (s *session) forbidden() bool {
	rules := s.listener.Rules(s.listener.Fixed)
	return rules.Refuse(&allow.Call{Peer: s.PeerNames()}, s.RemoteAddr(), s.host.Log)
}

// streamTimeout returns how long the endpoint may take to respond: as long as the other sidecar
// waits, and at most as long as for a request.
func (s *session) streamTimeout(st *link.Stream) time.Duration {
	if st.TimeLeft == 0 {
		return s.listener.Fixed.Timeout
	}
	return min(st.TimeLeft, s.listener.Fixed.Timeout)
}

// refuseStream sends the reason for which the stream is not taken, encoded for its kind.
func (s *session) refuseStream(st *link.Stream, f *fault.Failure) {
	exchange.Refuse(s.host.Shard, s, nil, f)
	shard.LogExample(s.host.Shard, exchange.ClientOf(s), "", shard.Example{}, f)
	out := []byte{byte(f.Reason())}
	if st.Kind == link.StreamHTTP {
		out = downstream.AppendFailure(nil, f, s.host.DateValue(), nil, http1.ResponseFlags{Minor: 1, Close: true})
	}
	s.Transport.Write(out)
	s.Transport.Drain()
	s.close()
}
