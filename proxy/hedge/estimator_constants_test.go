package hedge

import (
	"math/rand/v2"
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/histogram"
)

// untilQuantile observes latencies until the quantile is known. It returns their number and the quantile.
func untilQuantile(rnd *rand.Rand) (n int, delay time.Duration) {
	var e Estimator
	p := auto()
	for now := time.Duration(0); ; now += cacheAge {
		if delay = e.Delay(now, p); delay < p.MaxDelay {
			return n, delay
		}
		for range 10 {
			e.Observe(now, lognormal(rnd, .5))
			n++
		}
	}
}

func requestsToQuantile() float64 {
	n, _ := untilQuantile(rand.New(rand.NewPCG(1, 2)))
	return float64(n)
}

func errorOfFirstQuantile() float64 {
	return spread(func(rnd *rand.Rand) time.Duration {
		_, delay := untilQuantile(rnd)
		return delay
	})
}

// untilBest observes latencies until the best delay is known. It returns their number and the delay.
func untilBest(rnd *rand.Rand) (n int, delay time.Duration) {
	r := NewRoute(*auto(), 1)
	for now := time.Duration(0); ; now += 10 * ms {
		if r.Delays.Choose(now); r.Delays.best.Known() {
			return n, r.Delays.Of(now, 0)
		}
		for range 100 {
			r.Latencies.Observe(now, lognormal(rnd, 1), 0)
			n++
		}
	}
}

func requestsToBest() float64 {
	n, _ := untilBest(rand.New(rand.NewPCG(1, 2)))
	return float64(n)
}

func errorOfFirstBest() float64 {
	return spread(func(rnd *rand.Rand) time.Duration {
		_, delay := untilBest(rnd)
		return delay
	})
}

// dropsByChance returns how often there seems to be a drop in 2000 s of 300 requests each, though nothing has changed.
func dropsByChance() (n float64) {
	const rate = 300
	rnd := rand.New(rand.NewPCG(1, 2))
	var e Estimator
	for i := range time.Duration(2000 * rate) {
		now := i * time.Second / rate
		e.Observe(now, lognormal(rnd, 1.2))
		if i%(rate/10) == 0 && e.estimate(now, usualQuantile).dropped {
			n++
		}
	}
	return n
}

// fallTo has an estimator observe 10 s at 12 ms, and 2 s that are quicker. It reports whether that is a drop.
func fallTo(latency time.Duration, rate int) bool {
	var e Estimator
	for i := range 12 * rate {
		took := 12 * ms
		if i >= 10*rate {
			took = latency
		}
		e.Observe(time.Duration(i)*time.Second/time.Duration(rate), took)
	}
	return e.estimate(12*time.Second-1, usualQuantile).dropped
}

func leastRateOfDrop() float64 {
	for rate := 10; ; rate += 10 {
		if fallTo(4*ms, rate) {
			return float64(rate)
		}
	}
}

// leastDrop returns the least share of the latency by which it must fall for a drop.
func leastDrop() float64 {
	for by := .01; ; by += .01 {
		if fallTo(time.Duration((1-by)*12*float64(ms)), 1000) {
			return by
		}
	}
}

// computations returns how often the quantiles are computed in a second of requests at a distance.
func computations(every time.Duration) (n float64) {
	var e Estimator
	p := auto()
	last := time.Duration(-1)
	for now := time.Duration(0); now < time.Second; now += every {
		e.Observe(now, 4*ms)
		if e.Delay(now, p); e.cache.until != last {
			last = e.cache.until
			n++
		}
	}
	return n
}

// outdatedFor returns after what time the delay follows latencies that are twice as long, in milliseconds, if it was
// computed just before.
func outdatedFor(every time.Duration) float64 {
	var e Estimator
	p := auto()
	observe(&e, 100, 0, 4*ms)
	e.Delay(0, p)
	for now := every; ; now += every {
		observe(&e, 1, now, 8*ms)
		if e.Delay(now, p) > 5*ms {
			return float64(now) / float64(ms)
		}
	}
}

// slowOf returns the latencies of n requests, so many of them slow.
func slowOf(n, slow int64) *histogram.Distribution {
	var d histogram.Distribution
	d.Counts[histogram.BucketOf(4*ms)], d.Counts[histogram.BucketOf(20*ms)] = n-slow, slow
	return &d
}

// changesByChance returns how many of 5000 times 1000 requests seem to have changed, beside as many and 4000 before them.
func changesByChance() (n float64) {
	rnd := rand.New(rand.NewPCG(1, 2))
	slow := func(of int) (n int64) {
		for range of {
			if rnd.Float64() < .029 {
				n++
			}
		}
		return n
	}
	for range 5000 {
		short, before := slow(1000), slow(4000)
		if differ(slowOf(1000, short), slowOf(5000, short+before)) {
			n++
		}
	}
	return n
}

// leastChange returns how many more of 1000 requests must be slow to be a change, if 29 usually are.
func leastChange() float64 {
	for more := int64(1); ; more++ {
		if differ(slowOf(1000, 29+more), slowOf(10_000, 290)) {
			return float64(more)
		}
	}
}
