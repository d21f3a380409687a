package hedge

import (
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/choice"
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
	dropped bool          // it was made of the last seconds, since latencies have clearly fallen
}

// hedgeLatencies are hedges of late requests: when they responded, and when they were withdrawn.
type hedgeLatencies struct{ took, cutOff histogram.Window }

// Choose makes the choice of the best delay anew if it is outdated. The caller calls it several times a second.
func (r *Route) Choose(now time.Duration) {
	if !r.Policy.auto() || r.Policy.Mode == Off {
		return
	}
	in := choice.Limits{Min: r.Policy.MinDelay, Max: r.Policy.MaxDelay, Budget: r.Policy.Budget}
	r.classes.Choose(now, now-chooseEvery, minSlowest, in)
	fell, samples := r.Estimator.estimate(now, usualQuantile).dropped, r.Estimator.samples(now)
	if now-r.best.at < chooseEvery && fell == r.best.dropped && samples < 2*r.best.samples {
		return
	}
	r.best.at, r.best.dropped, r.best.samples = now, fell, max(samples, minSlowest/2)
	first, ok := r.Estimator.primaryLatencies(now)
	if !ok {
		r.best.Choice = choice.Choice{}
		return
	}
	if r.lostPrimaries != nil {
		lost := r.lostPrimaries.lost.Distribution(now, longHalf)
		first.Spread(&lost)
	}
	var hedges choice.Hedges
	if r.hedgeLatencies != nil {
		hedges.Took = r.hedgeLatencies.took.Distribution(now, longHalf)
		hedges.CutOff = r.hedgeLatencies.cutOff.Distribution(now, longHalf)
	}
	r.best.Choice = choice.Best(&first, &hedges, in, r.best.Choice)
}

// Best returns the choice of the best delay for requests without a class. It is not known unless the delay is auto.
func (r *Route) Best() choice.Choice { return r.best.Choice }

// Responded records the latency of a hedge.
func (r *Route) Responded(now, took time.Duration) { r.seconds().took.At(now, longHalf).Add(took) }

// Withdrew records a hedge that was withdrawn after a time, and would have taken longer.
func (r *Route) Withdrew(now, after time.Duration) { r.seconds().cutOff.At(now, longHalf).Add(after) }

func (r *Route) seconds() *hedgeLatencies {
	if r.hedgeLatencies == nil {
		r.hedgeLatencies = new(hedgeLatencies)
	}
	return r.hedgeLatencies
}
