package hedge

import (
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/class"
	"github.com/remora-proxy/remora/proxy/hedge/draw"
)

// Delays says when a request of a route is late enough for a hedge.
type Delays struct {
	policy    *Policy
	latencies *Latencies
	savings   *Savings
	best      best
	draws     draw.Numbers
}

// Of returns how long a request of class c waits for its next hedge. MaxDelay does not bound the delay of a class that
// usually takes longer.
func (d *Delays) Of(now time.Duration, c class.ID) time.Duration {
	if c == 0 || d.policy.Delay > 0 {
		return d.unclassed(now)
	}
	switch delay, median, own := d.latencies.estimateOf(now, c); {
	case !own:
		return d.unclassed(now)
	case d.policy.auto() && d.latencies.classes.Best(c).Known():
		return d.latencies.classes.Best(c).Delay
	case median > d.policy.MaxDelay:
		return delay
	default:
		return d.policy.clamp(delay)
	}
}

// unclassed returns how long a request without a class waits for its next hedge: the best delay or, as long as that
// is not known, Estimator.Delay.
func (d *Delays) unclassed(now time.Duration) time.Duration {
	if d.best.Known() && d.policy.auto() {
		return d.best.Delay
	}
	return d.latencies.Primaries.Delay(now, d.policy)
}

// minAskInterval is the shortest time between two decisions for one request. A
// delay may be a nanosecond, or 0: while a gate stays closed, the loop would do
// nothing but ask for each request in flight. Timers are no more exact than this.
// TestConstants shows what happens at twice and at half.
var minAskInterval = 500 * time.Microsecond

// Again returns the time between two decisions for a request: Of, at least minAskInterval.
func (d *Delays) Again(now time.Duration, c class.ID) time.Duration {
	return max(d.Of(now, c), minAskInterval)
}

// HeadHold returns for how long the head of an attempt may be held, since that was sent: each hedge may follow after
// another delay, and then has one delay to bring the first byte.
func (d *Delays) HeadHold(now time.Duration, c class.ID) time.Duration {
	return time.Duration(1+d.policy.Max) * d.Again(now, c)
}

// DrawPaid draws whether the budget pays for a hedge of the next request of class c if that request is late.
func (d *Delays) DrawPaid(now time.Duration, c class.ID) bool {
	if !d.policy.auto() {
		return true
	}
	of := &d.best.Choice
	if c > 0 {
		if _, _, own := d.latencies.estimateOf(now, c); own {
			of = d.latencies.classes.Best(c)
		}
	}
	if !of.Known() || of.Share == 1 {
		return true
	}
	return float64(d.draws.Next()) < of.Share*(1<<32)
}

// silentMedians is the number of medians for which an endpoint of normal latencies may well be silent. TestConstants shows
// what happens at twice and at half.
var silentMedians time.Duration = 2

// SilentAfter returns after how long without a response an endpoint with pending requests
// counts as silent. An endpoint that stopped while it had the request that is late now has been silent
// for the delay, less the median that the request may have taken before. Less than silentMedians
// is normal. It is shorter than StallAfter, because the question is whether many endpoints
// are silent at once.
func (d *Delays) SilentAfter(now time.Duration) time.Duration {
	delay := min(d.unclassed(now), d.latencies.Primaries.Delay(now, d.policy))
	median := d.latencies.estimate(now).median
	return max(delay-median, silentMedians*median)
}
