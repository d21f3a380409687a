package hedge

import (
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/choice"
	"github.com/remora-proxy/remora/proxy/hedge/class"
	"github.com/remora-proxy/remora/proxy/hedge/histogram"
)

// chooseEvery is the time between two choices of the best delay. A choice takes some microseconds.
const chooseEvery = time.Second

// best is the best delay of a route, as it was chosen last. A first choice is made of few requests, and the next
// one is made once they have doubled.
type best struct {
	choice.Choice
	at      time.Duration // when it was chosen
	samples uint64        // of which it was made, at least minSlowest/2
	fell    bool          // it was made of the last seconds, since latencies have clearly fallen
}

// second are hedges of late requests: when they responded, and when they were withdrawn.
type second struct{ took, cutOff histogram.Window }

// Choose makes the choice of the best delay anew if it is outdated. The caller calls it several times a second.
func (r *Route) Choose(now time.Duration) {
	if !r.Policy.auto() || r.Policy.Mode == Off {
		return
	}
	in := choice.Limits{Min: r.Policy.MinDelay, Max: r.Policy.MaxDelay, Budget: r.Policy.Budget}
	r.classes.Choose(now, now-chooseEvery, minSlowest, in)
	fell, samples := r.Estimator.estimate(now, usualQuantile).fell, r.Estimator.samples(now)
	if now-r.best.at < chooseEvery && fell == r.best.fell && samples < 2*r.best.samples {
		return
	}
	r.best.at, r.best.fell, r.best.samples = now, fell, max(samples, minSlowest/2)
	first, ok := r.Estimator.first(now)
	if !ok {
		r.best.Choice = choice.Choice{}
		return
	}
	if r.overtaken != nil {
		lost := r.overtaken.lost.Distribution(now, longHalf)
		first.Spread(&lost)
	}
	var hedges choice.Hedges
	if r.second != nil {
		hedges.Took = r.second.took.Distribution(now, longHalf)
		hedges.CutOff = r.second.cutOff.Distribution(now, longHalf)
	}
	r.best.Choice = choice.Best(&first, &hedges, in, r.best.Choice)
}

// Best returns the choice of the best delay for requests without a class. It is not known unless the delay is auto.
func (r *Route) Best() choice.Choice { return r.best.Choice }

// Responded records the latency of a hedge.
func (r *Route) Responded(now, took time.Duration) { r.seconds().took.At(now, longHalf).Add(took) }

// Withdrew records a hedge that was withdrawn after a time, and would have taken longer.
func (r *Route) Withdrew(now, after time.Duration) { r.seconds().cutOff.At(now, longHalf).Add(after) }

func (r *Route) seconds() *second {
	if r.second == nil {
		r.second = new(second)
	}
	return r.second
}

// Pays reports whether the budget pays for a hedge of the next request of class c if that is late.
func (r *Route) Pays(now time.Duration, c class.ID) bool {
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

// Delay returns how long a request without a class waits for its next hedge: the best delay or, as long as that
// is not known, Estimator.Delay.
func (r *Route) Delay(now time.Duration) time.Duration {
	if r.best.Known() && r.Policy.auto() {
		return r.best.Delay
	}
	return r.Estimator.Delay(now, &r.Policy)
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
