package spare

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/modeltest"
	"github.com/remora-proxy/remora/lb/log2"
)

// TestConstants shows what happens at half and at twice each constant of the model. The measure changes
// by at least a tenth.
func TestConstants(t *testing.T) {
	m := modeltest.New(t, &model, .1)
	m.Check("step: a first latency in a freeze is corrected later or earlier",
		modeltest.Of(&model.step), func() float64 { return errorAfter(60) }, 1, -1)
	m.Check("step: the quartile of exponential latencies is more or less exact",
		modeltest.Of(&model.step), errorOfQuartile, -1, 1)
	m.Check("remembered: the quartile of exponential latencies is less or more exact",
		modeltest.Of(&model.remembered), errorOfQuartile, 1, -1)
	m.Check("known: a load counts after fewer or more latencies",
		modeltest.Of(&model.known), latenciesToKnow, -1, 1)
	m.Check("remembered: a load without requests is forgotten earlier or later",
		modeltest.Of(&model.remembered), func() float64 { return secondsToForget(1000) }, -1, 1)
	m.Check("half: at 1,000 requests a second, a load is forgotten earlier or later",
		modeltest.Of(&model.half), func() float64 { return secondsToForget(1000) }, -1, 1)
	m.Check("halfSamples: at 20 requests a second, a load is forgotten earlier or later",
		modeltest.Of(&model.halfSamples), func() float64 { return secondsToForget(20) }, -1, 1)
	m.Check("halfMost: at a request a second, a load is forgotten earlier or later",
		modeltest.Of(&model.halfMost), func() float64 { return secondsToForget(1) }, -1, 1)
	m.Check("guess: of an endpoint of which nothing is known, fewer or more loads have room",
		modeltest.Of(&model.guess), func() float64 { return room(new(Curve), false) }, -1, 1)
	m.Check("slower: fewer or more loads have room",
		modeltest.Of(&model.slower), func() float64 { return room(shared(), false) }, -1, 1)
	m.Check("stuckSlower: for stuck requests, fewer or more loads have room",
		modeltest.Of(&model.stuckSlower), func() float64 { return room(shared(), true) }, -1, 1)
	m.Check("drift: a service that has become twice as slow has room again later or earlier",
		modeltest.Of(&model.drift), secondsToFollow, 1, -1)
	m.Check("usual: the usual load follows the load earlier or later",
		modeltest.Of(&model.usual), requestsToUsual, -1, 1)
}

const ms = time.Millisecond

func exponential(rnd *rand.Rand) float64 {
	return log2.Of(time.Duration(rnd.ExpFloat64()*float64(ms)) + 1)
}

// quartileOfExponential is the lower quartile of exponential latencies with a mean of 1 ms.
var quartileOfExponential = log2.Of(time.Duration(-math.Log(.75) * float64(ms)))

// errorOfQuartile returns the mean error of the quartile of exponential latencies, as a power of 2.
func errorOfQuartile() (sum float64) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var q quartile
	const n = 100_000
	for i := range n {
		if q.add(exponential(rnd)); i >= n/2 {
			sum += math.Abs(q.log-quartileOfExponential) / (n / 2)
		}
	}
	return sum
}

// errorAfter returns the mean error of the quartile after as many latencies as make it known, if the
// first latency is so many times as long.
func errorAfter(first float64) (sum float64) {
	const seeds = 200
	for seed := range uint64(seeds) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		var q quartile
		q.add(exponential(rnd) + math.Log2(first))
		for range 63 {
			q.add(exponential(rnd))
		}
		sum += math.Abs(q.log-quartileOfExponential) / seeds
	}
	return sum
}

// latenciesToKnow returns after how many latencies of requests that found load 10 there is room at 10.
func latenciesToKnow() float64 {
	var c Curve
	for n := 0; ; n++ {
		if c.HasRoom(0, 10, 0, false) {
			return float64(n)
		}
		c.Learn(0, log2.Of(ms), LevelOf(10))
	}
}

// secondsToForget returns when a load is forgotten that no request finds any more, at a rate of requests
// that find less.
func secondsToForget(rate int) float64 {
	var c Curve
	for range 2000 {
		c.Learn(0, log2.Of(ms), LevelOf(10))
	}
	for n := 0; ; n++ {
		now := time.Duration(n) * time.Second / time.Duration(rate)
		if _, known := c.slower(now, LevelOf(10)); !known {
			return now.Seconds()
		}
		c.Learn(now, log2.Of(ms), LevelOf(0))
	}
}

// shared is the curve of endpoints that become slower by a twentieth with each request: their workers share
// a processor, and cache.
func shared() *Curve {
	c := new(Curve)
	for load := range 200 {
		for range 64 {
			c.Learn(0, log2.Of(ms+time.Duration(load)*ms/20), LevelOf(float64(load)))
		}
	}
	return c
}

// room returns the largest load with room, of an endpoint that is usually idle.
func room(c *Curve, stuck bool) float64 {
	for load := 0; ; load++ {
		if !c.HasRoom(0, float64(load)+.5, 0, stuck) {
			return float64(load)
		}
	}
}

// secondsToFollow returns when there is room again after all latencies have become twice as long, at 1,000
// requests a second.
func secondsToFollow() float64 {
	var c Curve
	now := time.Duration(0)
	for ; now < 30*time.Second; now += ms {
		c.Learn(now, log2.Of(ms), LevelOf(1))
	}
	for began := now; ; now += ms {
		c.Learn(now, log2.Of(2*ms), LevelOf(1))
		if (now-began) > time.Second && c.HasRoom(now, 1, 0, false) {
			return (now - began).Seconds()
		}
	}
}

// requestsToUsual returns after how many requests half of a new load is usual.
func requestsToUsual() float64 {
	var u Usual
	for range 1000 {
		u.Add(0)
	}
	for n := 1; ; n++ {
		if u.Add(10); u.Load() > 5 {
			return float64(n)
		}
	}
}
