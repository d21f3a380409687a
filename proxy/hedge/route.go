package hedge

import (
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/class"
	"github.com/remora-proxy/remora/proxy/hedge/forecast"
	"github.com/remora-proxy/remora/proxy/hedge/histogram"
	"github.com/remora-proxy/remora/proxy/hedge/worth"
)

// Route is what one loop has learned of the latencies and hedges of one route, and says by that when its next request
// may be hedged. Service.Decide then says whether. A Route must not be copied once in use.
type Route struct {
	Policy    Policy
	Estimator Estimator
	Counts    Counts
	Heads     Heads

	worth          worth.Gate
	lostPrimaries  *overtaken      // nil until a hedge has won
	hedgeLatencies *hedgeLatencies // nil until a hedge has responded
	best           best
	rand           uint32
	shadow         *forecast.Shadow // nil unless the mode is Shadow
	quota          *forecast.Quota  // of shadow; nil means no bound

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
	r := &Route{Policy: p, rand: 1}
	r.classes.Disabled = p.OneClass
	if p.Mode == Shadow {
		r.shadow = forecast.New(forecast.Settings{
			MinDelay: p.MinDelay, MaxDelay: p.MaxDelay, Budget: p.Budget, MinBurst: minBurst(loops),
			Max: p.Max, Sample: p.Sample, AskInterval: minAskInterval,
		})
	}
	return r
}

// Inherit takes what was learned of the latencies from the route's last configuration.
func (r *Route) Inherit(last *Route) {
	r.Estimator = last.Estimator.clone()
	r.classes.Inherit(&last.classes, r.Policy.quantile() != last.Policy.quantile())
	r.best = last.best
	r.Heads = last.Heads
}

// Watch is what is known of one primary attempt. The zero value is an attempt without a class, which
// shadow mode does not follow.
type Watch struct {
	Class class.ID // of the request, from ClassOf
	Paid  bool     // the result of DrawPaid
	forecast.Watch
}

// Begin decides whether shadow mode watches a request that may be hedged.
func (r *Route) Begin(w *Watch) {
	if r.shadow != nil {
		r.shadow.Begin(&w.Watch, r.quota)
	}
}

// Bound makes the route one of those that share quota.
func (r *Route) Bound(quota *forecast.Quota) { r.quota = quota }

// Retire gives back the route's part of its quota. The route gets no more requests.
func (r *Route) Retire() {
	if r.shadow != nil {
		r.shadow.Retire(r.quota)
	}
}

// Shadow returns what forecasts the effect of hedging; nil unless the mode is Shadow. The caller of its Sent
// keeps the Watch until Observe or Censor. It calls neither if nothing is learned from the attempt.
func (r *Route) Shadow() *forecast.Shadow { return r.shadow }

// Forecasts returns what hedging would have done to the watched requests with the first most of
// several delays; see forecast.Shadow. Unless the mode is Shadow it returns nil.
func (r *Route) Forecasts(now time.Duration, most int) (out []forecast.Forecast, watched histogram.Distribution) {
	if r.shadow == nil || most == 0 {
		return nil, watched
	}
	return r.shadow.Forecasts(now, r.Delay(now), most)
}

// Observe records the response to a primary, as Estimator.Observe does.
func (r *Route) Observe(now, latency time.Duration, w *Watch) {
	r.Estimator.Observe(now, latency)
	if w.Class != 0 {
		r.classes.Observe(now, latency, w.Class)
	}
	r.forecast(now, w, false)
}

// Censor records a primary that was given up before its response, as Estimator.Censor does.
func (r *Route) Censor(now time.Duration, w *Watch) {
	r.Estimator.Censor(now)
	if w.Class != 0 {
		r.classes.Censor(now, w.Class)
	}
	r.forecast(now, w, true)
}

func (r *Route) forecast(now time.Duration, w *Watch, cutOff bool) {
	if !w.Follows() {
		return
	}
	route := forecast.State{Primaries: r.Counts.Primaries}
	if w.Watched {
		route.Delay, route.Paid = r.DelayOf(now, w.Class), w.Paid
		_, route.Median, _ = r.estimateOf(now, w.Class)
	}
	r.shadow.End(now, route, &w.Watch, cutOff)
}

// Won counts a hedge that brought a good response before any other attempt did.
func (r *Route) Won() { r.Counts.HedgesWon++ }

// Missed counts a hedge that reached no application. Whether it would have won is unknown.
func (r *Route) Missed() { r.Counts.HedgesMissed++ }
