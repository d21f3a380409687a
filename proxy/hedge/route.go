package hedge

import (
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/class"
)

// Route is the hedging state of one route on one loop: its policy, its latency, and what hedges
// save. It must not be copied once in use.
type Route struct {
	Policy    Policy
	Estimator Estimator
	Counts    Counts

	worth     worth
	overtaken *overtaken // nil until a hedge has won
	shadow    *shadow    // nil unless the mode is Shadow
	room      *Room      // nil means no bound

	classes class.Set
}

// Counts are the counters of a route or, added up, of a service.
type Counts struct {
	Primaries    uint64 // requests that began, whatever the mode
	Hedges       uint64 // hedges sent
	HedgesMissed uint64 // hedges sent that reached no application
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
	r.classes.Disabled = p.OneClass
	if p.Mode == Shadow {
		r.shadow = newShadow(&p, loops)
	}
	return r
}

// Inherit takes what was learned of the latencies from the route's last configuration.
func (r *Route) Inherit(last *Route) {
	r.Estimator = last.Estimator
	r.classes.Inherit(&last.classes, r.Policy.Quantile != last.Policy.Quantile)
}

// Delay returns how long a request without a class waits for its next hedge; see
// Estimator.Delay.
func (r *Route) Delay(now time.Duration) time.Duration { return r.Estimator.Delay(now, &r.Policy) }

// minAskInterval is the shortest time between two decisions for one request. A
// delay may be a nanosecond, or 0: while a gate stays closed, the loop would do
// nothing but ask for each request in flight. Timers are no more exact than this.
const minAskInterval = 500 * time.Microsecond

// Again returns the time between two decisions for a request: DelayOf, at least minAskInterval.
func (r *Route) Again(now time.Duration, c class.ID) time.Duration {
	return max(r.DelayOf(now, c), minAskInterval)
}

// Begin decides whether shadow mode watches a request that may be hedged.
func (r *Route) Begin(w *Watch) {
	if s := r.shadow; s != nil && (s.admitted || s.admit(r.room)) {
		w.Hedgeable, w.Watched = true, s.choose()
	}
}

// Bound makes the route one of those that share room.
func (r *Route) Bound(room *Room) { r.room = room }

// Retire gives back the route's part of its Room. The route gets no more requests.
func (r *Route) Retire() {
	if r.shadow != nil && r.shadow.admitted && r.room != nil {
		r.room.taken--
	}
}

// Shadows reports whether the route is in shadow mode.
func (r *Route) Shadows() bool { return r.shadow != nil }

// Sent records that the primary of a hedgeable request is handed to the endpoint with the given
// number. The caller keeps w until Answered or Late; it calls neither if nothing is learned from
// the attempt. If note is true, it calls Note at once.
func (r *Route) Sent(now time.Duration, w *Watch, endpoint uint32) (note bool) {
	w.sent, w.endpoint, w.noted = now, endpoint, false
	return now >= r.shadow.notedAt+noteEvery
}

// Note has the latency of the request stand for that of a hedge at that time. unavailable reports
// whether the endpoint was stalled or had no spare capacity before.
func (r *Route) Note(now time.Duration, w *Watch, unavailable bool) {
	r.shadow.notedAt = now
	w.noted, w.number = true, r.shadow.timeline.add(now, w.endpoint, unavailable)
}

// Answered records the response to a primary, as Estimator.Observe does.
func (r *Route) Answered(now, latency time.Duration, w *Watch) {
	r.Estimator.Observe(now, latency)
	if w.Class != 0 {
		r.classes.Observe(now, latency, w.Class)
	}
	if w.noted || w.Watched {
		r.shadow.end(now, r, w, false)
	}
}

// Late records a primary that was given up before its response, as Estimator.Censor does.
func (r *Route) Late(now time.Duration, w *Watch) {
	r.Estimator.Censor(now)
	if w.Class != 0 {
		r.classes.Censor(now, w.Class)
	}
	if w.noted || w.Watched {
		r.shadow.end(now, r, w, true)
	}
}

// Won counts a hedge that brought a good response before any other attempt did.
func (r *Route) Won() { r.Counts.HedgesWon++ }

// Missed counts a hedge that reached no application. Whether it would have won is unknown.
func (r *Route) Missed() { r.Counts.HedgesMissed++ }
