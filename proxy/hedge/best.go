package hedge

import (
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/choice"
)

// chooseEvery is the time between two choices of the best delay. A choice takes some microseconds.
// TestConstants shows what happens at twice and at half.
var chooseEvery = time.Second

// best is the best delay of a route, as it was chosen last. A first choice is made of few requests, and the next
// one is made once they have doubled.
type best struct {
	choice.Choice
	at      time.Duration // when it was chosen
	samples uint64        // of which it was made, at least minSlowest/2
	dropped bool          // it was made of the last seconds, since latencies have clearly fallen
}

// Choose makes the choice of the best delay anew if it is outdated. The caller calls it several times a second.
func (d *Delays) Choose(now time.Duration) {
	if !d.policy.auto() || d.policy.Mode == Off {
		return
	}
	in := choice.Limits{Min: d.policy.MinDelay, Max: d.policy.MaxDelay, Budget: d.policy.Budget}
	l, last := d.latencies, &d.best
	l.classes.Choose(now, now-chooseEvery, minSlowest, in, func() choice.Futile {
		return choice.Futile{Took: l.Primaries.futile.long.Distribution(now, longHalf), Of: int64(l.Primaries.samples(now))}
	})
	fell, samples := l.Primaries.estimate(now, usualQuantile).dropped, l.Primaries.samples(now)
	if now-last.at < chooseEvery && fell == last.dropped && samples < 2*last.samples {
		return
	}
	last.at, last.dropped, last.samples = now, fell, max(samples, uint64(minSlowest)/2)
	first, futile, ok := l.Primaries.primaryLatencies(now)
	if !ok {
		last.Choice = choice.Choice{}
		return
	}
	d.savings.spread(now, &first)
	hedges := choice.Hedges{Futile: choice.Futile{Took: futile, Of: first.Samples()}}
	if l.hedges != nil {
		hedges.Took = l.hedges.took.Distribution(now, longHalf)
		hedges.CutOff = l.hedges.cutOff.Distribution(now, longHalf)
	}
	last.Choice = choice.Best(&first, &hedges, in, last.Choice)
}

// Best returns the choice of the best delay for requests without a class. It is not known unless the delay is auto.
func (d *Delays) Best() choice.Choice { return d.best.Choice }
