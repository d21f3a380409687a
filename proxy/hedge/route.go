package hedge

import (
	"github.com/remora-proxy/remora/proxy/hedge/class"
	"github.com/remora-proxy/remora/proxy/hedge/forecast"
)

// Route joins what one loop has for the hedging of one route. Each part has one job. Service.Decide asks the
// parts whether a hedge may be sent. A Route must not be copied once in use.
type Route struct {
	Policy Policy
	Counts Counts

	Latencies Latencies   // how long attempts take
	Savings   Savings     // what hedges have saved
	Delays    Delays      // when a request is late
	Heads     Heads       // whether heads of streams are held
	Shadow    *ShadowMode // what hedges would do; nil unless the mode is Shadow
}

// Counts are the counters of a route or, added up, of a service.
type Counts struct {
	Primaries    uint64 // requests that began, whatever the mode
	Hedges       uint64 // hedges sent
	HedgesMissed uint64 // hedges sent that reached no application; whether they would have won is unknown
	HedgesWon    uint64 // hedges sent whose good response came first
	Gates        [Gates]uint64
}

// Add adds o to c.
func (c *Counts) Add(o *Counts) {
	c.Primaries += o.Primaries
	c.Hedges += o.Hedges
	c.HedgesMissed += o.HedgesMissed
	c.HedgesWon += o.HedgesWon
	for i, n := range o.Gates {
		c.Gates[i] += n
	}
}

// NewRoute returns the state of a route with policy p on one of the given number of loops.
func NewRoute(p Policy, loops int) *Route {
	r := &Route{Policy: p}
	r.Latencies.init(&r.Policy)
	r.Delays = Delays{policy: &r.Policy, latencies: &r.Latencies, savings: &r.Savings, draws: 1}
	if p.Mode == Shadow {
		r.Shadow = newShadowMode(r, loops)
	}
	return r
}

// Inherit takes what was learned of the latencies from the route's last configuration.
func (r *Route) Inherit(last *Route) {
	r.Latencies.inherit(&last.Latencies)
	r.Delays.best = last.Delays.best
	r.Heads = last.Heads
}

// Watch is what is known of one primary attempt. The zero value is an attempt without a class, which
// shadow mode does not follow.
type Watch struct {
	Class class.ID // of the request, from Latencies.ClassOf
	Paid  bool     // the result of Delays.DrawPaid
	forecast.Watch
}
