package hedge

import "time"

// Route is what hedging knows of one route on one loop: its policy, the latency
// there, and whether hedges help. It must not be copied once in use.
type Route struct {
	Policy    Policy
	Estimator Estimator
	Counts    Counts

	wins wins
}

// Counts are the counts of a route or, added up, of a service.
type Counts struct {
	Primaries    uint64 // requests that began, whatever the mode
	Hedges       uint64 // sent
	HedgesMissed uint64 // of these, the ones that reached no application
	HedgesWon    uint64 // of these, the ones whose good answer came first
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

// NewRoute returns the state of a route with this policy.
func NewRoute(p Policy) *Route { return &Route{Policy: p} }

// Delay is how long to wait before the next hedge; see Estimator.Delay.
func (r *Route) Delay(now time.Duration) time.Duration { return r.Estimator.Delay(now, &r.Policy) }

// Won counts a hedge that brought a good answer before any other attempt did.
func (r *Route) Won() {
	r.Counts.HedgesWon++
	r.wins.win()
}

// Missed counts a hedge that reached no application: nobody can tell whether it
// would have won.
func (r *Route) Missed() {
	r.Counts.HedgesMissed++
	r.wins.missed()
}

// WinRate is the part of the last few hundred hedges that won; while the gate
// useless is closed, of its probes.
func (r *Route) WinRate() float64 { return r.wins.rate() }
