package proxy

import (
	"maps"
	"slices"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/hedge"
)

// Held is the number of message bytes in memory, exactly; it may be asked for
// only while no loop is running callbacks.
func (p *Process) Held() int64 {
	n := p.shared.budget.held()
	for _, w := range p.workers {
		n += w.shard.uncounted
	}
	return n
}

// Kept is how many bytes of buffers the loops keep for the next long messages; it may
// be asked for as Held may.
func (p *Process) Kept() (n int64) {
	for _, w := range p.workers {
		n += int64(w.shard.buffers.Kept())
	}
	return n
}

// Slots is how many of a service's slots are in use, and how many requests wait
// for one.
func (p *Process) Slots(service string) (used, queued int) {
	s := p.sharedOf(service)
	if s == nil {
		return 0, 0
	}
	return s.slotsInUse()
}

// SlotLimit is how many slots a service has now; 0: there is no limit.
func (p *Process) SlotLimit(service string) int {
	if s := p.sharedOf(service); s != nil {
		return s.slotLimit()
	}
	return 0
}

// WorkerReport is what one loop knows at one moment, as plain data: nothing in
// it refers to what the loop goes on using.
type WorkerReport struct {
	Generation uint64 // of the configuration that the loop works by
	Stats      WorkerStats
	Loop       LoopStats       // zero where the driver does not count
	Services   []ServiceReport // by name
}

// ServiceReport is one service as one loop sees it.
type ServiceReport struct {
	Name    string
	Version uint64 // of the snapshot in use; 0: none yet
	Stats   ServiceStats

	Breaker        BreakerState
	Panics         bool    // so many endpoints are unhealthy or ejected that none counts as such
	HedgesInFlight int     // losers that are not over yet included
	Tokens         float64 // hedges and paid retries that could be sent at once

	// Routes that lead to the service, in order of configuration; the one of
	// listeners with a fixed service comes last.
	Routes    []RouteReport
	Endpoints []EndpointReport // by address
}

// RouteReport is what hedging does on one route.
type RouteReport struct {
	Route int        // index in Config.Routes; -1: of listeners with a fixed service
	Mode  hedge.Mode // as configured
	// Delay is how long a request waits for its hedge now; what it would wait
	// where hedging is off.
	Delay time.Duration

	Counts    hedge.Counts
	Recent    int                // hedges that the gate useless remembers
	RecentWon int                // of these, the ones that won
	Latency   hedge.Distribution // of primaries
	Forecasts []hedge.Forecast   // with mode shadow only
}

// EndpointReport is one endpoint as one loop sees it.
type EndpointReport struct {
	Addr        string
	Connections int           // open ones and those being dialled
	Pending     int           // this loop's attempts and streams there
	Latency     time.Duration // recent average; 0: unknown
	Stalled     bool          // silent for too long with requests pending
	Unhealthy   bool          // by its active health check
	Ejected     bool          // until it has served a probe
	EjectedBy   lb.Reason     // why, if Ejected
	Others      float64       // load of others that its sidecar reported
	Reported    bool          // Others is less than a second old
	Ejections   uint64        // so far
	Stats       EndpointStats
}

// Report describes the loop. It is called on the loop, and takes about 200 ns an
// endpoint there: for people and scrapes, not for requests.
func (w *Worker) Report() WorkerReport {
	r := WorkerReport{Generation: w.generation, Stats: w.shard.stats, Services: make([]ServiceReport, 0, len(w.services))}
	r.Stats.Errors = maps.Clone(w.shard.stats.Errors)
	if l, ok := w.shard.loop.(Metered); ok {
		r.Loop = l.Stats()
	}
	for _, name := range slices.Sorted(maps.Keys(w.services)) {
		r.Services = append(r.Services, w.services[name].report())
	}
	return r
}

// Applied tells whether the loop has endpoints of the service to work with, be
// it none: some snapshot of it has arrived. It is called on the loop.
func (w *Worker) Applied(service string) bool {
	s := w.services[service]
	return s != nil && s.version != 0
}

// Post runs f on the worker's loop, soon, or drops it when the loop has stopped.
// Any goroutine may call it.
func (w *Worker) Post(f func()) { w.shard.loop.Post(f) }

func (s *service) report() ServiceReport {
	now := s.w.loop.Now()
	r := ServiceReport{
		Name: s.cfg.Name, Version: s.version, Stats: s.counts(), Panics: s.set.Panics(),
		Breaker: s.bounds.breaker.state(now), HedgesInFlight: s.hedging.InFlight(), Tokens: s.hedging.Tokens(now),
		Endpoints: make([]EndpointReport, s.set.Len()),
	}
	for _, rt := range s.routes {
		r.Routes = append(r.Routes, rt.report(now))
	}
	for i := range r.Endpoints {
		e := s.set.At(i)
		own := e.Ext.(*endpoint)
		at := &r.Endpoints[i]
		*at = EndpointReport{
			Addr: e.Addr, Connections: own.up.connections() + e.Streams(), Pending: e.Pending() + e.Streams(),
			Latency: e.Latency(), Stalled: s.set.Stalled(now, e), Unhealthy: e.Unhealthy,
			Ejections: e.Ejections(), Stats: own.stats,
		}
		at.Others, at.Reported = e.Reported(now)
		at.EjectedBy, at.Ejected = e.Ejected()
	}
	return r
}

func (r *route) report(now time.Duration) RouteReport {
	h := r.hedging
	out := RouteReport{
		Route: r.index, Mode: h.Policy.Mode, Delay: h.Delay(now), Counts: h.Counts,
		Latency: h.Estimator.Distribution(now), Forecasts: h.Forecasts(now),
	}
	out.Recent, out.RecentWon = h.Recent()
	return out
}

// ServicePending is how many requests of the service are in flight on all loops,
// losers that are still at an application included.
func (p *Process) ServicePending(service string) int {
	if s := p.sharedOf(service); s != nil {
		return s.inFlight()
	}
	return 0
}

// counts are the service's, with those of hedging from its routes.
func (s *service) counts() ServiceStats {
	c := s.stats
	for _, r := range s.routes {
		c.Counts.Add(&r.hedging.Counts)
	}
	c.Ejections = s.set.Ejections
	return c
}

// ServiceStats returns a copy of the loop's counts for a service. It is called
// on the loop.
func (w *Worker) ServiceStats(service string) *ServiceStats {
	s := w.services[service].counts()
	return &s
}
