package outlier

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/modeltest"
)

// TestConstants shows what happens at half and at twice each constant of the model. The measure changes
// by at least a tenth.
func TestConstants(t *testing.T) {
	m := modeltest.New(t, &model, .1)
	m.Check("half: a failure is forgotten earlier or later",
		modeltest.Of(&model.half), secondsToForget, -1, 1)
	m.Check("half: an endpoint needs more or fewer requests a second to have a record that counts",
		modeltest.Of(&model.half), leastRate, 1, -1)
	m.Check("enough: of endpoints that fail three attempts in ten, more or fewer are ejected by chance",
		modeltest.Of(&model.enough), ejectedByChance, 1, -1)
	m.Check("enough: an endpoint needs fewer or more requests a second to have a record that counts",
		modeltest.Of(&model.enough), leastRate, -1, 1)
	m.Check("prior: a single failure takes more or less of the load",
		modeltest.Of(&model.prior), afterOneFailure, -1, 1)
	m.Check("doublings: an endpoint that never recovers is probed more or less often in the long run",
		modeltest.Of(&model.doublings), longest, -1, 1)
}

const sec = time.Second

// secondsToForget returns when a failure has no effect any more.
func secondsToForget() float64 {
	var r Record
	r.Count(100*sec, false)
	for now := 100 * sec; ; now += sec / 10 {
		if r.Expire(now); r.Discount() == 1 {
			return (now - 100*sec).Seconds()
		}
	}
}

// leastRate returns how many requests a second an endpoint needs so that its record always counts.
func leastRate() float64 {
	for rate := time.Duration(1); ; rate++ {
		var r Record
		always := true
		for now := time.Duration(0); now < 100*sec; now += sec / rate {
			_, ok := r.Mean()
			always = always && (ok || now < 50*sec)
			r.CountLatency(now, 1)
		}
		if always {
			return float64(rate)
		}
	}
}

// ejectedByChance returns how many of 10,000 endpoints are ejected at a success rate of 0.5 within 100
// attempts of which each fails with a probability of 0.3.
func ejectedByChance() (n float64) {
	rnd := rand.New(rand.NewPCG(1, 2))
	rules := Rules{SuccessRate: .5}
	for range 10_000 {
		var r Record
		for range 100 {
			good := rnd.Float64() >= .3
			r.Count(0, good)
			if _, failing := rules.Failing(&r); failing && !good {
				n++
				break
			}
		}
	}
	return n
}

// afterOneFailure returns the share of its load that an endpoint has after a single attempt, which failed.
func afterOneFailure() float64 {
	var r Record
	r.Count(0, false)
	return r.Discount()
}

// longest returns the longest ejection as a power of 2 of the base.
func longest() float64 {
	var x Ejection
	now := sec
	x.Begin(now, 1, ByLatency)
	for range 100 {
		now = x.until
		x.Extend(now, 1)
	}
	n := 0.0
	for d := x.until - now; d > 1; d /= 2 {
		n++
	}
	return n
}
