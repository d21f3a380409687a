package downstream

import (
	"bytes"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// TimeLeft returns how long the response to ex, a stream, may take from now on. A host without a
// route has timeouts.idle.
func (h *Host) TimeLeft(ex *exchange.Exchange) time.Duration {
	now := h.Loop.Now()
	switch {
	case ex.Route != nil:
		return ex.TimeLeft(ex.Route, now)
	case ex.Request.Deadline != 0:
		return min(h.Config.Timeouts.Idle, ex.Request.Deadline-now)
	}
	return h.Config.Timeouts.Idle
}

// CheckStream applies the limits of the process to a request that is to leave the loop. own is the number of bytes
// that are counted for it. lasting reports whether the stream may last for hours: a draining process takes none.
func (h *Host) CheckStream(own int, lasting bool) *fault.Failure {
	switch {
	case lasting && h.Process.Draining.Load():
		return fault.Draining
	case h.Process.Budget.Full(own):
		return fault.Overloaded
	}
	return nil
}

// StreamAnswer takes over a response whose body is a stream. Its head is in the loop's scratch memory. minor is of the
// version of the client from, HTTP/1.x.
func (h *Host) StreamAnswer(from exchange.Caller, res *race.Response, minor uint8) *StreamAnswer {
	a := &StreamAnswer{
		Head: bytes.Clone(h.Scratch), Source: res.TakeSource(), Opener: h.Opener.From(exchange.ClientOf(from)),
		Chunks: res.DeclaredLength < 0 && minor >= 1,
	}
	res.Release()
	return a
}

// StreamRequest returns the request of ex, from the session from, as one that owns its memory. It
// has limit for its response. The session adds the head, the body, and what concerns its protocol.
func (h *Host) StreamRequest(kind stats.StreamKind, from exchange.Caller, ex *exchange.Exchange, o *Origin, limit time.Duration) *StreamRequest {
	service, client, trust := "", exchange.ClientOf(from), o.Client
	r := &StreamRequest{
		Kind: kind, Timeout: limit, RequestID: bytes.Clone(ex.RequestID),
		Trailers: func(hs []protocol.Header) []protocol.Header { return keepTrailers(hs, &trust) },
		Edit:     ResponseEditor(ex, o), Interactive: protocol.Interactive(ex.Request.Headers),
	}
	r.GRPC = r.Interactive && protocol.IsGRPC(ex.Request.Headers)
	client.GRPC = r.GRPC
	if ex.Route == nil {
		r.Unrouted = &Unrouted{Listener: o.Listener.Name, Authority: string(ex.Request.Authority)}
	} else {
		cfg := ex.Route.Service.Config
		service = cfg.Name
		client.Session = ex.Session(ex.Route.Service)
		r.Repeats = ex.Repeats()
		r.SetHost(cfg, ex.Request.Authority)
		if ex.Request.Timed || cfg.TimeoutHeader {
			ex.Request.Headers, _ = protocol.SetTimeLeft(ex.Request.Headers, limit, nil)
		}
	}
	r.Service, r.Opener = service, h.Opener.From(client)
	r.Record = exchange.LogStream(&h.AccessLog, stats.Handoff(kind).String(), from, ex, service)
	return r
}
