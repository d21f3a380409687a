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

// leaving takes the connection off the loop with a stream, if the limits allow that.
//
// Calls in: input gives it each stream (take).
//
// Calls out: Streams of package downstream get the connection, and the ending closes the session.
type leaving struct{ *session }

// take takes the connection, which carries the stream st, off the loop. rest is what followed st's preface.
func (l *leaving) take(st link.Stream, rest []byte) {
	h := l.host
	if f := l.checkStream(&st); f != nil {
		l.refuseStream(&st, f)
		return
	}
	names := l.PeerNames() // they leave with the connection
	peer, err := l.Transport.Detach()
	switch {
	case err == nil:
	case err == loop.ErrDetachClosed: // OnClose follows
		return
	case errors.Is(err, errors.ErrUnsupported):
		l.refuseStream(&st, fault.Unsupported)
		return
	default: // the system has no descriptor left
		l.refuseStream(&st, fault.Overloaded)
		return
	}
	l.ending.close()
	h.Stats.Handoffs[stats.HandoffAccepted]++
	client := exchange.ClientOf(&l.calls)
	a := &downstream.StreamAccept{
		Opener: h.Opener.From(client), Client: client, Service: l.serviceName(),
		Timeout: l.streamTimeout(&st), Stream: st, Rest: bytes.Clone(rest),
	}
	if st.Kind == link.StreamHTTP {
		a.Rules, a.Peer = l.listener.Rules(l.listener.Fixed), names
	}
	if st.Kind != link.StreamAnswer { // its request has a record
		a.Record = exchange.LogStream(&h.AccessLog, accesslog.StreamOpaque, &l.calls, nil, a.Service)
	}
	h.Streams.Accept(peer, a)
}

// checkStream applies the limits of the listener and of the process. A stream that fetches the
// body of a response is exempt: its request has passed them.
func (l *leaving) checkStream(st *link.Stream) *fault.Failure {
	s := exchange.Unread{Counted: l.Account.Messages(), Opaque: st.Kind == link.StreamOpaque}
	switch {
	case !l.host.Process.Streams:
		return fault.Unsupported
	case st.Kind == link.StreamAnswer:
		return nil
	case s.Opaque: // no limit or rule of requests can see into it
		s.Taken = l.opaque() || l.listener.Fixed.Service.Config.Opaque
	default:
		s.Taken = !l.opaque()
	}
	return s.Check(&l.calls, l.host.Shard)
}

// streamTimeout returns how long the endpoint may take to respond: as long as the other sidecar
// waits, and at most as long as for a request.
func (l *leaving) streamTimeout(st *link.Stream) time.Duration {
	if st.TimeLeft == 0 {
		return l.listener.Fixed.Timeout
	}
	return min(st.TimeLeft, l.listener.Fixed.Timeout)
}

// refuseStream sends the reason for which the stream is not taken, encoded for its kind.
func (l *leaving) refuseStream(st *link.Stream, f *fault.Failure) {
	l.host.Refuse(&l.calls, nil, f)
	out := []byte{byte(f.Reason())}
	if st.Kind == link.StreamHTTP {
		out = downstream.AppendFailure(nil, f, l.host.DateValue(), nil, http1.ResponseFlags{Minor: 1, Close: true})
	}
	l.Transport.Write(out)
	l.Transport.Drain()
	l.ending.close()
}
