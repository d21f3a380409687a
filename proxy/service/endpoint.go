package service

import (
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// Endpoint is what the core adds to an lb.Endpoint, in its Ext. Most endpoints of a large mesh never get an attempt of
// this loop. So the upstream is made for the first attempt or probe, and the counts for the first attempt.
type Endpoint struct {
	ID       uint32 // within the service
	Streams  StreamAccess
	Resets   bool // see Protocol
	retired  bool // it has left the service, or has another protocol now
	LB       *lb.Endpoint
	Protocol string
	Presumed int    // pending attempts of LB whose connection was closed
	pin      string // the value of the sticky cookie that names it, if the service has one

	service  *Service
	upstream Connections          // nil before an attempt or a probe needs it
	stats    *stats.EndpointStats // nil before the first attempt
}

// Upstream returns the connections to the endpoint.
func (e *Endpoint) Upstream() Connections {
	if e.upstream == nil {
		e.connect()
	}
	return e.upstream
}

func (e *Endpoint) connect() {
	e.upstream = e.service.protocol(e.Protocol).Connector(e.service, e)
	if e.retired {
		e.upstream.Retire()
	}
}

// retire notes that the endpoint gets no more attempts: connections close once nothing is in flight on them.
func (e *Endpoint) retire() {
	e.retired = true
	if e.upstream != nil {
		e.upstream.Retire()
	}
}

// connections counts those of requests and those of streams.
func (e *Endpoint) connections() (n int) {
	if e.upstream != nil {
		n = e.upstream.Connections()
	}
	if e.Streams != StreamPipe { // else they share
		n += e.LB.Streams()
	}
	return n
}

// CountSent counts an attempt with so many bytes, which may be a retry or a hedge.
func (e *Endpoint) CountSent(bytes int, retry, hedge bool) {
	if e.stats == nil {
		e.stats = new(stats.EndpointStats)
	}
	s := e.stats
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

// CountResponse counts a response of so many bytes to an attempt that CountSent has counted.
func (e *Endpoint) CountResponse(bytes int) { e.stats.BytesOut += uint64(bytes) }

// CountEnd counts how an attempt that CountSent has counted has ended, and its latency if the application has finished
// it.
func (e *Endpoint) CountEnd(how stats.AttemptOutcome, latency time.Duration) {
	e.stats.Outcomes[how]++
	if how == stats.AttemptUnseen || how == stats.AttemptServed {
		e.stats.Latency.Observe(latency)
	}
}

// adopt makes what the core adds to e, unless e has it for that protocol.
func (s *Service) adopt(e *lb.Endpoint, proto string) {
	old, ok := e.Ext.(*Endpoint)
	if ok && old.Protocol == proto {
		return
	}
	s.lastID++
	by := s.protocol(proto)
	next := &Endpoint{ID: s.lastID, LB: e, Protocol: proto, Streams: by.Streams, Resets: by.Resets, service: s}
	if ok {
		if old.stats != nil { // next counts the ends of what old has counted as sent
			next.stats = new(stats.EndpointStats)
		}
		old.retire()
	}
	e.Ext = next
}

// protocol returns how the loop connects to endpoints of a protocol, which may be unknown.
func (s *Service) protocol(name string) Protocol {
	by, known := s.connectors[name]
	if !known {
		by = s.connectors[""]
	}
	return by
}
