package exchange

import (
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// sent counts an attempt that is handed to the endpoint.
func (e *Endpoint) sent(a *Attempt) {
	s := &e.stats
	s.BytesIn += uint64(a.ex.size())
	switch a.kind {
	case retryAttempt:
		s.Retries++
	case hedgeAttempt:
		s.Hedges++
	}
}

// ended counts the end of an attempt.
func (e *Endpoint) ended(how stats.AttemptOutcome, latency time.Duration) {
	e.stats.Outcomes[how]++
	if how >= stats.AttemptUnseen {
		e.stats.Latency.Observe(latency)
	}
}

// Endpoint is what the core keeps beside an lb.Endpoint, in its Ext.
type Endpoint struct {
	id       uint32 // within the service
	LB       *lb.Endpoint
	protocol string
	streams  StreamAccess
	up       Upstream
	stats    stats.EndpointStats
}

// connect gives an endpoint the upstream for its protocol, unless it has it.
func (s *Service) connect(e *lb.Endpoint, proto string) {
	if old, ok := e.Ext.(*Endpoint); ok {
		if old.protocol == proto {
			return
		}
		old.up.Retire()
	}
	s.lastID++
	by := s.connectors.of(proto)
	target := &Endpoint{id: s.lastID, LB: e, protocol: proto, streams: by.Streams}
	target.up = by.Upstream(s, target)
	e.Ext = target
}
