package exchange

import (
	"time"

	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// Report describes the service on this loop.
func (s *Service) Report() stats.ServiceReport {
	now := s.Shard.Loop.Now()
	r := stats.ServiceReport{
		Name: s.Config.Name, Version: s.Version, Stats: s.Counts(), Panics: s.set.Panics(),
		Breaker: s.bounds.breaker.State(now), HedgesInFlight: s.hedging.InFlight(), Tokens: s.hedging.Tokens(now),
		Endpoints: make([]stats.EndpointReport, s.set.Len()),
	}
	for _, rt := range s.routes {
		r.Routes = append(r.Routes, rt.report(now))
	}
	for i := range r.Endpoints {
		e := s.set.At(i)
		own := e.Ext.(*Endpoint)
		at := &r.Endpoints[i]
		*at = stats.EndpointReport{
			Addr: e.Addr, Connections: own.upstream.Connections() + e.Streams(), Pending: e.Pending() + e.Streams(),
			Latency: e.Latency(), Stalled: s.set.Stalled(now, e), Unhealthy: e.Unhealthy,
			Ejections: e.Ejections(), Stats: own.stats,
		}
		at.Others, at.Reported = e.Reported(now)
		at.EjectedBy, at.Ejected = e.Ejected()
	}
	return r
}

func (r *Route) report(now time.Duration) stats.RouteReport {
	h := r.hedging
	out := stats.RouteReport{
		Route: r.index, Mode: h.Policy.Mode, Delay: h.Delay(now), Counts: h.Counts,
		Latency: h.Estimator.Distribution(now), Forecasts: h.Forecasts(now),
	}
	out.Recent, out.RecentWon = h.Recent()
	return out
}

// Counts are the counters of the service, with those of hedging on its routes.
func (s *Service) Counts() stats.ServiceStats {
	c := s.stats
	for _, r := range s.routes {
		c.Counts.Add(&r.hedging.Counts)
	}
	c.Ejections = s.set.Ejections
	return c
}
