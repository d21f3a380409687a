package service

import (
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// Endpoint is what the core adds to an lb.Endpoint, in its Ext.
type Endpoint struct {
	ID       uint32 // within the service
	LB       *lb.Endpoint
	Protocol string
	Streams  StreamAccess
	Upstream Connections
	Presumed int    // pending attempts of LB whose connection was closed
	pin      string // the value of the sticky cookie that names it, if the service has one
	Stats    stats.EndpointStats
}

// connections counts those of requests and those of streams.
func (e *Endpoint) connections() int {
	if e.Streams == StreamPipe { // they share
		return e.Upstream.Connections()
	}
	return e.Upstream.Connections() + e.LB.Streams()
}

// CountSent counts an attempt with so many bytes, which may be a retry or a hedge.
func (e *Endpoint) CountSent(bytes int, retry, hedge bool) {
	s := &e.Stats
	s.BytesIn += uint64(bytes)
	switch {
	case retry:
		s.Retries++
	case hedge:
		s.Hedges++
	}
}

// ReadLoad looks for the endpoint's own report of its load in headers or trailers of a response.
func (e *Endpoint) ReadLoad(now time.Duration, hs []protocol.Header) {
	if r, ok := protocol.LoadReported(hs); ok {
		e.LB.ReportUtilization(now, r.Rate, r.Utilization())
	}
}

// CountEnd counts how an attempt at the endpoint has ended, and its latency if the application has finished it.
func (e *Endpoint) CountEnd(how stats.AttemptOutcome, latency time.Duration) {
	e.Stats.Outcomes[how]++
	if how == stats.AttemptUnseen || how == stats.AttemptServed {
		e.Stats.Latency.Observe(latency)
	}
}

// connect makes the upstream of an endpoint, unless it has one of that protocol.
func (s *Service) connect(e *lb.Endpoint, proto string) {
	if old, ok := e.Ext.(*Endpoint); ok {
		if old.Protocol == proto {
			return
		}
		old.Upstream.Retire()
	}
	by, known := s.connectors[proto]
	if !known {
		by = s.connectors[""]
	}
	s.lastID++
	target := &Endpoint{ID: s.lastID, LB: e, Protocol: proto, Streams: by.Streams}
	target.Upstream = by.Connector(s, target)
	e.Ext = target
}
