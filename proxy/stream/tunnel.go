package stream

import (
	"time"

	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
)

// tunnel is a stream of opaque bytes to an endpoint, or to the host of a CONNECT request.
type tunnel struct {
	*pair
	connector connector
	relay     relay
	query     endpointQuery
	rest      []byte // bytes of down that were read already
	// accepted is sent to down when the stream is open, and failureResponse when it can't be
	// opened. If failureResponse returns nothing, down is reset, and only errors_total counts
	// the failure.
	accepted        []byte
	failureResponse func(*fault.Failure) []byte

	status int // the HTTP status in accepted; 0 if it has none
	record *accesslog.StreamRecord
}

// newTunnel returns a tunnel for the client of p. The caller sets rest, accepted, failureResponse, status and record.
func (s *Server) newTunnel(p *pair, service string, timeout time.Duration) *tunnel {
	return &tunnel{
		pair: p, connector: connector{p: p}, relay: relay{p: p},
		query: endpointQuery{service: service, kind: link.StreamOpaque, timeout: timeout},
	}
}

func (t *tunnel) run() {
	end := accesslog.StreamEnd{Cut: true} // of a panic
	defer func() { t.record.End(end) }()
	if f := t.why.Load(); f != nil {
		end = t.fail(f)
		return
	}
	cfg := t.srv.service(t.query.service)
	if (t.down.buffered() || cfg.TLS.Enabled()) && t.srv.opt.Process.Full() {
		t.opener.Failed(fault.Overloaded)
		end = t.fail(fault.Overloaded)
		return
	}
	early := newInput(t.srv.opt.Process, t.rest)
	t.rest = nil
	defer early.free()
	defer t.connector.forgetHop()
	st, _, fail := t.connector.connect(&t.query)
	if fail != nil {
		end = t.fail(fail)
		return
	}
	st.Connected(0)
	defer func() { st.Close(true, end.In, end.Out) }()
	if t.writeEarly(t.accepted) != nil {
		t.abort()
	}
	in, out := t.relay.run(early)
	end = accesslog.StreamEnd{Status: t.status, Failure: t.why.Load(), Cut: t.isAborted(), Endpoint: t.connector.dialled, In: in, Out: out}
}

// fail refuses the stream, and returns its end.
func (t *tunnel) fail(f *fault.Failure) accesslog.StreamEnd {
	end := accesslog.StreamEnd{Failure: f, Cut: t.isAborted(), Endpoint: t.connector.dialled}
	t.refuse(t.failureResponse(f))
	return end
}

// noResponse is the failureResponse of streams without a way to report a failure.
func noResponse(*fault.Failure) []byte { return nil }
