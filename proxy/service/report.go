package service

import (
	"time"

	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// Report describes the service on this loop.
func (s *Service) Report(d stats.Detail) stats.ServiceReport {
	if d == stats.Totals {
		return stats.ServiceReport{Name: s.Config.Name, Version: s.Version, Stats: s.Counts()}
	}
	now := s.Shard.Loop.Now()
	r := stats.ServiceReport{
		Name: s.Config.Name, Version: s.Version, Stats: s.Counts(), Panics: s.Set.Panics(),
		Breaker: s.Bounds.breakerState(now), HedgesInFlight: s.Hedging.InFlight(), Tokens: s.Hedging.Tokens(now),
		Endpoints: make([]stats.EndpointReport, s.Set.Len()),
	}
	r.Stalls, r.StalledAt = s.period(now)
	for i := range s.Routes {
		r.Routes = append(r.Routes, s.Routes[i].report(now, d))
	}
	for i := range r.Endpoints {
		e := s.Set.At(i)
		own := e.Ext.(*Endpoint)
		at := &r.Endpoints[i]
		*at = stats.EndpointReport{
			Addr: e.Addr, Connections: own.connections(), Pending: e.Pending() + e.Streams(),
			Latency: e.Latency(), Stalled: s.Set.Stalled(now, e), Unhealthy: e.Unhealthy,
			Ejections: e.Ejections(),
		}
		if own.stats != nil {
			at.Stats = *own.stats
		}
		at.FailedInRow, at.RecentGood = e.Streak(now)
		at.Others, at.Reported = e.Reported(now)
		at.EjectedBy, at.Ejected = e.Ejected()
	}
	return r
}

// HedgedRoute is a route to the service, as hedging sees it.
type HedgedRoute struct {
	*hedge.Route
	Index int // of the route in config.Config.Routes; -1 means of listeners with a fixed service
}

// RetireRoute keeps the counts of a route that is gone.
func (s *Service) RetireRoute(h *hedge.Route) {
	s.Stats.Counts.Add(&h.Counts)
	if h.Shadow != nil {
		h.Shadow.Retire()
	}
}

func (h *HedgedRoute) report(now time.Duration, d stats.Detail) stats.RouteReport {
	out := stats.RouteReport{
		Route: h.Index, Mode: h.Policy.Mode, Delay: h.Delays.Of(now, 0), Choice: h.Delays.Best(), Counts: h.Counts,
		Latency: h.Latencies.Primaries.Distribution(now),
	}
	if d != stats.Counters {
		out.Classes, out.Effect = h.Classes(now), h.Effect(now)
	}
	out.Forecasts, out.Watched = h.Shadow.Forecasts(now, int(d))
	return out
}

// Counts are the counters of the service, with those of hedging on its routes.
func (s *Service) Counts() stats.ServiceStats {
	c := s.Stats
	for _, r := range s.Routes {
		c.Counts.Add(&r.Route.Counts)
	}
	c.Ejections, c.PassedOver = s.Set.Ejections(), s.Set.PassedOver
	return c
}
