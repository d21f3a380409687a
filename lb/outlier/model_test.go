package outlier

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestConstants shows what happens at half and at twice each constant of the model. The measure changes
// by at least a tenth.
func TestConstants(t *testing.T) {
	for _, c := range []struct {
		name        string
		scale       func(by float64)
		measure     func() float64
		half, twice int // the sign of the change of measure
	}{
		{"half: a failure is forgotten earlier or later",
			func(by float64) { model.half = time.Duration(float64(model.half) * by) }, secondsToForget, -1, 1},
		{"half: an endpoint needs more or fewer requests a second to have a record that counts",
			func(by float64) { model.half = time.Duration(float64(model.half) * by) }, leastRate, 1, -1},
		{"enough: of endpoints that fail three attempts in ten, more or fewer are ejected by chance",
			func(by float64) { model.enough = uint32(float64(model.enough) * by) }, ejectedByChance, 1, -1},
		{"enough: an endpoint needs fewer or more requests a second to have a record that counts",
			func(by float64) { model.enough = uint32(float64(model.enough) * by) }, leastRate, -1, 1},
		{"prior: a single failure takes more or less of the load",
			func(by float64) { model.prior *= by }, afterOneFailure, -1, 1},
		{"doublings: an endpoint that never recovers is probed more or less often in the long run",
			func(by float64) { model.doublings = int(float64(model.doublings) * by) }, longest, -1, 1},
	} {
		usual := c.measure()
		for _, at := range []struct {
			by   float64
			want int
		}{{.5, c.half}, {2, c.twice}} {
			was := model
			c.scale(at.by)
			got := c.measure()
			model = was
			t.Logf("%s: at %v times it is %.3f, and %.3f at the constant", c.name, at.by, got, usual)
			if (got/usual-1)*float64(at.want) < .1 {
				t.Errorf("%s: at %v times it is %.3f, and %.3f at the constant", c.name, at.by, got, usual)
			}
		}
	}
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
