package choice

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/modeltest"
	"github.com/remora-proxy/remora/proxy/hedge/histogram"
)

// TestConstants shows what happens at half and at twice each constant of the model. The measure changes
// by at least a tenth.
func TestConstants(t *testing.T) {
	m := modeltest.New(t, &model, .1)
	m.Check("slowest: the mean is of fewer and slower requests, or of more", modeltest.Of(&model.slowest), meanWithout, 1, -1)
	m.Check("near: fewer or more delays stay as they are", modeltest.Of(&model.near), delaysKept, -1, 1)
	m.Check("gain: fewer or more stragglers are worth hedges", modeltest.Of(&model.gain), stragglersWorthIt, -1, 1)
	m.Check("doubt: all late requests get a hedge up to fewer or more of them", modeltest.Of(&model.doubt), mostLate, -1, 1)
	m.Check("enough: hedges are measured earlier, by less evidence, or later", modeltest.Of(&model.enough), hedgesToMeasure, -1, 1)
}

// meanWithout returns the mean of the slowest without hedges, in milliseconds.
func meanWithout() float64 {
	first := of(lognormal(ms, 1), 20_000)
	c := Best(&first, &Hedges{}, usual, Choice{})
	return float64(c.Without) / float64(ms)
}

// delaysKept returns how many delays stay as they are though another one is better, for several distributions.
func delaysKept() (n float64) {
	in := Limits{Min: ms / 10, Max: 50 * ms, Budget: .5}
	for sigma := .5; sigma < 1.2; sigma += .02 {
		first := of(lognormal(ms, sigma), 5000)
		best := Best(&first, &Hedges{}, in, Choice{})
		for i := boundOf(in.Min) + 1; i < boundOf(in.Max); i++ {
			last := Choice{Delay: duration(times[i])}
			if c := Best(&first, &Hedges{}, in, last); c.Delay == last.Delay && c.Delay != best.Delay {
				n++
			}
		}
	}
	return n
}

// stragglersWorthIt returns the number of stragglers of a million requests from which hedges gain enough.
func stragglersWorthIt() float64 {
	for n := int64(10); ; n += 10 {
		var first histogram.Distribution
		first.Counts[histogram.BucketOf(ms)] = 1_000_000
		first.Counts[histogram.BucketOf(10*ms)] = n
		if c := Best(&first, &Hedges{}, usual, Choice{}); c.Gains() {
			return float64(n)
		}
	}
}

// mostLate returns by which share late requests may be more than the budget pays, in thousandths of it, among 20,000.
func mostLate() float64 {
	for over := int64(1); ; over++ {
		var first histogram.Distribution
		first.Counts[histogram.BucketOf(20*ms)] = 1000 + over
		first.Counts[histogram.BucketOf(ms)] = 19_000 - over
		if c := Best(&first, &Hedges{}, usual, Choice{}); c.Share < 1 {
			return float64(over)
		}
	}
}

// hedgesToMeasure returns after how many hedges that save nothing none are sent.
func hedgesToMeasure() float64 {
	first, hedges := of(stragglers(.02), 10_000), Hedges{}
	for n := 1; ; n++ {
		hedges.Took.Counts[histogram.BucketOf(time.Second)]++
		if c := Best(&first, &hedges, usual, Choice{}); !c.Gains() {
			return float64(n)
		}
	}
}
