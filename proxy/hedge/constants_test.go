package hedge

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/modeltest"
	"github.com/remora-proxy/remora/proxy/hedge/histogram"
)

// TestConstants shows what happens at half and at twice each constant.
func TestConstants(t *testing.T) {
	modeltest.Check(t, "minSamples: hedges are late by the quantile after fewer or more requests", &minSamples, requestsToQuantile, -1, 1)
	modeltest.Check(t, "minSamples: the first quantile is less or more exact", &minSamples, errorOfFirstQuantile, 1, -1)
	modeltest.Check(t, "minSlowest: the best delay is known after fewer or more requests", &minSlowest, requestsToBest, -1, 1)
	modeltest.Check(t, "minSlowest: the first best delay is less or more exact", &minSlowest, errorOfFirstBest, 1, -1)
	modeltest.Check(t, "minRecent: chance is taken for a drop more or less often", &minRecent, dropsByChance, 1, -1)
	modeltest.Check(t, "minRecent: a drop is noticed at fewer or more requests a second", &minRecent, leastRateOfDrop, -1, 1)
	modeltest.CheckFactor(t, "dropFactor: chance is taken for a drop more or less often", &dropFactor, dropsByChance, 1, -1)
	modeltest.CheckFactor(t, "dropFactor: a smaller or only a larger drop is noticed", &dropFactor, leastDrop, -1, 1)
	modeltest.Check(t, "cacheAge: at 1,000 requests a second, quantiles are computed more or less often", &cacheAge, func() float64 { return computations(ms) }, 1, -1)
	modeltest.Check(t, "cacheAge: at 1,000 requests a second, the delay is outdated for a shorter or longer time", &cacheAge, func() float64 { return outdatedFor(ms) }, -1, 1)
	modeltest.Check(t, "cacheSamples: at 100,000 requests a second, quantiles are computed more or less often", &cacheSamples, func() float64 { return computations(ms / 100) }, 1, -1)
	modeltest.Check(t, "cacheSamples: at 100,000 requests a second, the delay is outdated for a shorter or longer time", &cacheSamples, func() float64 { return outdatedFor(ms / 100) }, -1, 1)
	modeltest.Check(t, "shortHalf: with 25 requests a second, P99.9 in the minute after trouble is longer, or as long", &shortHalf, func() float64 { return p999AfterTrouble(25, time.Minute) }, 1, 0)
	modeltest.Check(t, "shortHalf: with 100 requests a second, P99.9 in ten seconds after trouble is as long, or longer", &shortHalf, func() float64 { return p999AfterTrouble(100, 10*time.Second) }, 0, 1)
	modeltest.Check(t, "longHalf: with 3 requests a second, P99.9 is longer or shorter", &longHalf, func() float64 { return p999After(3, 1, time.Minute) }, 1, -1)
	modeltest.Check(t, "longHalf: with 10 requests a second, P99.9 in the minute after a slow release is as long, or longer", &longHalf, func() float64 { return p999After(10, 2, time.Minute) }, 0, 1)
	modeltest.Check(t, "recentHalf: with 600 requests a second, P99.9 in ten seconds after trouble is longer", &recentHalf, func() float64 { return p999AfterTrouble(600, 10*time.Second) }, 1, 1)
	modeltest.Check(t, "deviations: chance is taken for a change more or less often", &deviations, changesByChance, 1, -1)
	modeltest.Check(t, "deviations: a smaller or only a larger change is noticed", &deviations, leastChange, -1, 1)
	modeltest.Check(t, "stallMedians: more or fewer normal silences are stalls", &stallMedians, stallsByChance, 1, -1)
	modeltest.Check(t, "stallMedians: an endpoint that is silent is avoided earlier or later", &stallMedians, mediansToStall, -1, 1)
	modeltest.New(t, &usualQuantile, .1).Check("usualQuantile: fewer or more requests are late, until the best delay is known",
		func(by float64) { usualQuantile = 1 - (1-usualQuantile)*by }, lateUntilBest, -1, 1)
	modeltest.Check(t, "chooseEvery: choices are made more or less often", &chooseEvery, choices, 1, -1)
	modeltest.Check(t, "chooseEvery: the best delay follows a change earlier or later", &chooseEvery, millisecondsToFollow, -1, 1)
	modeltest.Check(t, "minTotal: with few requests, fewer of those that are stuck in a freeze get a hedge, or more", &minTotal, hedgesInFreeze, -1, 1)
	modeltest.Check(t, "minTotal: a service of few requests may get fewer or more than the budget says", &minTotal, hedgesOfFewRequests, -1, 1)
	modeltest.Check(t, "silentMedians: more or fewer normal silences count as silent", &silentMedians, silentByChance, 1, -1)
	modeltest.Check(t, "silentMedians: endpoints that are silent together are noticed earlier or later", &silentMedians, mediansToSilence, -1, 1)
	modeltest.Check(t, "minAskInterval: while a gate is closed, a request asks more or less often", &minAskInterval, asksInTenMilliseconds, 1, -1)
	modeltest.Check(t, "minAskInterval: a hedge follows a gate that opens earlier or later", &minAskInterval, asksLate, -1, 1)
	modeltest.Check(t, "leastGain: a smaller or only a larger gain is worth the hedges", &leastGain, leastGainOfVerdict, -1, 1)
	modeltest.Check(t, "leastBeyond: there is a verdict after fewer or more requests", &leastBeyond, requestsToVerdict, -1, 1)
	modeltest.Check(t, "leastBeyond: the gain of the first verdict is less or more exact", &leastBeyond, errorOfFirstVerdict, 1, -1)
	modeltest.Check(t, "mostScore: where first bytes begin to come late, fewer or more heads are held in vain", &mostScore, headsInVain, -1, 1)
	modeltest.Check(t, "mostScore: where first bytes begin to come in time, heads are held earlier or later", &mostScore, bytesUntilHeld, -1, 1)
	modeltest.Check(t, "mostScore: where a tenth of the first bytes come late, fewer heads are held, or hardly more", &mostScore, func() float64 { return heads(.9, true) }, -1, 0)
	modeltest.Check(t, "costOfMiss: where half of the first bytes come late, more or fewer heads are held in vain", &costOfMiss, func() float64 { return heads(.5, false) }, 1, -1)
	modeltest.Check(t, "costOfMiss: where a tenth of the first bytes come late, hardly more or fewer heads are held", &costOfMiss, func() float64 { return heads(.9, true) }, 0, -1)
}

// lognormal draws a latency with a median of 4 ms.
func lognormal(rnd *rand.Rand, sigma float64) time.Duration {
	return time.Duration(4 * math.Exp(rnd.NormFloat64()*sigma) * float64(ms))
}

// spread returns the standard deviation of the logarithms of what draw returns, for many seeds.
func spread(draw func(rnd *rand.Rand) time.Duration) float64 {
	const seeds = 200
	sum, squares := 0.0, 0.0
	for seed := range uint64(seeds) {
		x := math.Log(float64(draw(rand.New(rand.NewPCG(seed, 1)))))
		sum, squares = sum+x, squares+x*x
	}
	return math.Sqrt(squares/seeds - sum/seeds*sum/seeds)
}

// narrow is an estimator of latencies that are rarely far from their median, with a short delay that is configured.
func narrow() (*Estimator, *Policy) {
	var e Estimator
	p, rnd := auto(), rand.New(rand.NewPCG(1, 2))
	p.Delay = ms
	for range 10_000 {
		e.Observe(0, lognormal(rnd, .5))
	}
	return &e, p
}

// stallsByChance returns how many of 10,000 requests take so long that an endpoint would count as stalled.
func stallsByChance() (n float64) {
	e, p := narrow()
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 10_000 {
		if lognormal(rnd, .5) >= e.StallAfter(0, p) {
			n++
		}
	}
	return n
}

func mediansToStall() float64 {
	e, p := narrow()
	return float64(e.StallAfter(0, p)) / float64(4*ms)
}

// delaysOf returns the delays of those latencies.
func delaysOf() *Delays {
	e, p := narrow()
	r := NewRoute(*p, 1)
	r.Latencies.Primaries = *e
	return &r.Delays
}

// silentByChance returns how many of 10,000 requests take so long that an endpoint would count as silent.
func silentByChance() (n float64) {
	d, rnd := delaysOf(), rand.New(rand.NewPCG(3, 4))
	for range 10_000 {
		if lognormal(rnd, .5) >= d.SilentAfter(0) {
			n++
		}
	}
	return n
}

func mediansToSilence() float64 { return float64(delaysOf().SilentAfter(0)) / float64(4*ms) }

// lateUntilBest returns the share of the requests that are later than the delay before the best one is known.
func lateUntilBest() float64 {
	rnd := rand.New(rand.NewPCG(1, 2))
	r, late := NewRoute(*auto(), 1), 0.0
	for range 10_000 {
		r.Latencies.Observe(0, lognormal(rnd, .5), 0)
	}
	for range 10_000 {
		if lognormal(rnd, .5) > r.Delays.Of(0, 0) {
			late++
		}
	}
	return late / 10_000
}

// choices returns how often the best delay is chosen in a minute.
func choices() (n float64) {
	r := NewRoute(*auto(), 1)
	for now := time.Duration(0); now < 80*time.Second; now += ms {
		r.Latencies.Observe(now, 4*ms, 0)
		last := r.Delays.best.at
		if r.Delays.Choose(now); now > 20*time.Second && r.Delays.best.at != last {
			n++
		}
	}
	return n
}

// millisecondsToFollow returns after what time, on average, stragglers of a new kind have a delay.
func millisecondsToFollow() (mean float64) {
	const phases = 8
	for phase := range time.Duration(phases) {
		r := NewRoute(*auto(), 1)
		now, change := time.Duration(0), 20*time.Second+phase*chooseEvery/phases
		for i := 0; now < change || !r.Delays.best.Gains(); i++ {
			now += ms
			took := 4 * ms
			if now > change && i%10 == 0 {
				took = 40 * ms
			}
			r.Latencies.Observe(now, took, 0)
			r.Delays.Choose(now)
		}
		mean += float64(now-change) / float64(ms) / phases
	}
	return mean
}

// hedgesInFreeze returns how many requests that are stuck at once get a hedge at a service of few requests.
func hedgesInFreeze() (n float64) {
	s, r, q := NewService(1), NewRoute(*auto(), 1), willing()
	q.Stuck = true
	for s.Decide(0, r, &q) == Open {
		n++
	}
	return n
}

// hedgesOfFewRequests returns how many of 20 requests in 10 s get a hedge, if all are late.
func hedgesOfFewRequests() float64 {
	s, r, q := NewService(1), NewRoute(*auto(), 1), willing()
	for now := time.Duration(0); now < 10*time.Second; now += time.Second / 2 {
		s.Primary(now, r)
		if s.Decide(now, r, &q) == Open {
			s.Done()
		}
	}
	return float64(r.Counts.Hedges)
}

// asksUntil asks as a loop does, with a delay of 0, from 0 on. It returns how often that is, and when it ends.
func asksUntil(end time.Duration) (n float64, now time.Duration) {
	r := NewRoute(Policy{Mode: On, Delay: 1, Max: 1}, 1)
	for ; now < end; now += r.Delays.Again(now, 0) {
		n++
	}
	return n, now
}

func asksInTenMilliseconds() float64 {
	n, _ := asksUntil(10 * ms)
	return n
}

// asksLate returns how much later than the gate opens a hedge is sent, on average, in milliseconds.
func asksLate() (mean float64) {
	const times = 1000
	for i := range time.Duration(times) {
		opens := i * 10 * ms / times
		_, sent := asksUntil(opens)
		mean += float64(sent-opens) / float64(ms) / times
	}
	return mean
}

// leastGainOfVerdict returns the least gain that a verdict names, as a share of P99.
func leastGainOfVerdict() float64 {
	for gain := .01; ; gain += .01 {
		slow := map[time.Duration]int64{400 * ms: 400}
		better := map[time.Duration]int64{time.Duration((1 - gain) * 400 * float64(ms)): 400}
		if strings.Contains(effect(1, slow, better).Verdict(), "off P99") {
			return gain
		}
	}
}

// untilVerdict adds requests of which a hundredth and a bit are slow until there is a verdict. It returns their number,
// and the gain for P99 that the verdict names.
func untilVerdict(rnd *rand.Rand) (n int, gain time.Duration) {
	e := Effect{Mode: On}
	for ; ; n++ {
		took := lognormal(rnd, .5)
		e.Without.Counts[histogram.BucketOf(took)]++
		e.With.Counts[histogram.BucketOf(min(took, 5*ms))]++
		e.Requests++
		verdict := e.Verdict()
		if strings.Contains(verdict, "off P99") {
			x, err := strconv.ParseFloat(strings.Fields(verdict)[2], 64) // hedging takes 6.1 ms off P99
			if err != nil {
				panic(err)
			}
			return n + 1, time.Duration(x * float64(ms))
		}
	}
}

func requestsToVerdict() float64 {
	n, _ := untilVerdict(rand.New(rand.NewPCG(1, 2)))
	return float64(n)
}

func errorOfFirstVerdict() float64 {
	return spread(func(rnd *rand.Rand) time.Duration {
		_, gain := untilVerdict(rnd)
		return gain
	})
}

// headsInVain returns how many heads are held in vain once first bytes, which all came in time, all come late.
func headsInVain() (n float64) {
	var h Heads
	for range 100 {
		h.Followed()
	}
	for ; h.Hold(); n++ {
		h.Missed()
	}
	return n
}

// bytesUntilHeld returns how many first bytes come in time until heads are held, after all came late.
func bytesUntilHeld() (n float64) {
	var h Heads
	for range 100 {
		h.Missed()
	}
	for ; !h.Hold(); n++ {
		h.Followed()
	}
	return n
}

// heads returns how many of 10,000 heads are held, by whether their first byte comes in time, if it does so with a
// probability.
func heads(probability float64, inTime bool) (n float64) {
	var h Heads
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		held, comes := h.Hold(), rnd.Float64() < probability
		if held && comes == inTime {
			n++
		}
		switch {
		case comes:
			h.Followed()
		case held:
			h.Missed()
		}
	}
	return n
}
