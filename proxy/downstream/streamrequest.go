package downstream

import (
	"bytes"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

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
// has the time that is left for its response. The session adds the head, the body, and what concerns its protocol.
func (h *Host) StreamRequest(kind stats.StreamKind, from exchange.Caller, ex *exchange.Exchange, o *Origin) *StreamRequest {
	service, client, trust := "", exchange.ClientOf(from), o.Client
	limit := max(time.Millisecond, ex.StreamTimeLeft())
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
		client.Session = sessionOf(from, ex)
		r.Repeats = ex.Route.Repeats(&ex.Request)
		r.SetHost(cfg, ex.Request.Authority)
		if ex.Request.Timed || cfg.TimeoutHeader {
			ex.Request.Headers, _ = protocol.SetTimeLeft(ex.Request.Headers, limit, nil)
		}
	}
	r.Service, r.Opener = service, h.Opener.From(client)
	r.Record = exchange.LogStream(&h.AccessLog, stats.Handoff(kind).String(), from, ex, service)
	return r
}

// sessionOf returns the session of the request of ex at its service. It is called before the request is encoded, since it
// removes a sticky cookie.
func sessionOf(from exchange.Caller, ex *exchange.Exchange) shard.Session {
	s := ex.Route.Service
	return s.Sessions.OfStream(&ex.Request, from.RemoteAddr(), from.Listener().Secure, s.Shard.Rand)
}
