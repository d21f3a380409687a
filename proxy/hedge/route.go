package hedge

import "time"

// Route is what hedging knows of one route on one loop: its policy, the latency
// there, and whether hedges help. It must not be copied once in use.
type Route struct {
	Policy    Policy
	Estimator Estimator
	Counts    Counts

	wins   wins
	shadow *shadow // with mode Shadow only
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

// NewRoute returns the state of a route with this policy on one of loops loops.
func NewRoute(p Policy, loops int) *Route {
	r := &Route{Policy: p}
	if p.Mode == Shadow {
		r.shadow = newShadow(&p, loops)
	}
	return r
}

// Delay is how long to wait before the next hedge; see Estimator.Delay.
func (r *Route) Delay(now time.Duration) time.Duration { return r.Estimator.Delay(now, &r.Policy) }

// againAfter is the least time from one ask of a request for a hedge to the next.
// Delays may be of a nanosecond, or 0: where a gate stays closed, the loop would do
// nothing but ask for each request that waits. Timers are no more exact than this.
const againAfter = 500 * time.Microsecond

// Again is how long a request waits that has asked for a hedge before it asks for one
// again: a delay, but againAfter at least.
func (r *Route) Again(now time.Duration) time.Duration { return max(r.Delay(now), againAfter) }

// Sent takes note of a primary that is handed to an endpoint, known by a number;
// shut: it was stalled or busy before. The caller keeps w until Answered or Late,
// of which one follows unless nothing is learned from the attempt.
func (r *Route) Sent(now time.Duration, w *Watch, endpoint uint32, shut bool) {
	if r.shadow != nil {
		r.shadow.start(now, w, endpoint, shut)
	}
}

// Shadows tells whether the route is in shadow mode, and so in need of Sent.
func (r *Route) Shadows() bool { return r.shadow != nil }

// Answered takes note of the answer to a primary, as Estimator.Observe does.
func (r *Route) Answered(now, latency time.Duration, w *Watch) {
	r.Estimator.Observe(now, latency)
	if r.shadow != nil {
		r.shadow.end(now, r, w, false)
	}
}

// Late takes note of a primary that was not waited for, as Estimator.Censor does.
func (r *Route) Late(now time.Duration, w *Watch) {
	r.Estimator.Censor(now)
	if r.shadow != nil {
		r.shadow.end(now, r, w, true)
	}
}

// Forecasts is what hedging would have done with a number of delays, the one in
// force first; nil unless the mode is Shadow. It is for reports.
func (r *Route) Forecasts(now time.Duration) []Forecast {
	if r.shadow == nil {
		return nil
	}
	return r.shadow.forecasts(now, r)
}

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

// Recent is the number of the last few hundred hedges, and of those that won; while
// the gate useless is closed, of its probes.
func (r *Route) Recent() (hedges, won int) { return int(r.wins.sent), int(r.wins.won) }
