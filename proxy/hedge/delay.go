package hedge

import (
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/class"
)

// DelayOf returns how long a request of class c waits for its next hedge; see Delay. MaxDelay
// does not bound the delay of a class that usually takes longer.
func (r *Route) DelayOf(now time.Duration, c class.ID) time.Duration {
	if c == 0 || r.Policy.Delay > 0 {
		return r.Delay(now)
	}
	switch delay, median, own := r.estimateOf(now, c); {
	case !own:
		return r.Delay(now)
	case r.Policy.auto() && r.classes.Best(c).Known():
		return r.classes.Best(c).Delay
	case median > r.Policy.MaxDelay:
		return delay
	default:
		return r.Policy.clamp(delay)
	}
}

// Delay returns how long a request without a class waits for its next hedge: the best delay or, as long as that
// is not known, Estimator.Delay.
func (r *Route) Delay(now time.Duration) time.Duration {
	if r.best.Known() && r.Policy.auto() {
		return r.best.Delay
	}
	return r.Estimator.Delay(now, &r.Policy)
}

// minAskInterval is the shortest time between two decisions for one request. A
// delay may be a nanosecond, or 0: while a gate stays closed, the loop would do
// nothing but ask for each request in flight. Timers are no more exact than this.
const minAskInterval = 500 * time.Microsecond

// Again returns the time between two decisions for a request: DelayOf, at least minAskInterval.
func (r *Route) Again(now time.Duration, c class.ID) time.Duration {
	return max(r.DelayOf(now, c), minAskInterval)
}

// DrawPaid draws whether the budget pays for a hedge of the next request of class c if that request is late.
func (r *Route) DrawPaid(now time.Duration, c class.ID) bool {
	if !r.Policy.auto() {
		return true
	}
	of := &r.best.Choice
	if c > 0 {
		if _, _, own := r.estimateOf(now, c); own {
			of = r.classes.Best(c)
		}
	}
	if !of.Known() || of.Share == 1 {
		return true
	}
	r.rand ^= r.rand << 13
	r.rand ^= r.rand >> 17
	r.rand ^= r.rand << 5
	return float64(r.rand) < of.Share*(1<<32)
}

// SilentAfter returns after how long without a response an endpoint with pending requests
// counts as silent. An endpoint that stopped while it had the request that is late now has been silent
// for the delay, less the median that the request may have taken before. Less than two medians
// are normal. It is shorter than StallAfter, because the question is whether many endpoints
// are silent at once.
func (r *Route) SilentAfter(now time.Duration) time.Duration {
	delay := min(r.Delay(now), r.Estimator.Delay(now, &r.Policy))
	median := r.Estimator.estimate(now, r.Policy.quantile()).median
	return max(delay-median, 2*median)
}
