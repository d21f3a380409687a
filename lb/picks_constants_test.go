package lb

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/modeltest"
)

// TestConstantsOfPicks shows what happens at half and at twice each constant that many requests read. A constant that is no
// variable has its value from the test.
func TestConstantsOfPicks(t *testing.T) {
	modeltest.Check(t, "latencyLife: with few requests, mean latency beside a slow endpoint is longer, or hardly shorter",
		&latencyLife, func() float64 { return mean(besideSlow(LeastPending{})) }, 1, 0)
	modeltest.Check(t, "latencyLife: mean latency after that endpoint has become the quickest hardly changes",
		&latencyLife, meanOnceQuick, 0, 0)
	modeltest.Check(t, "peakLife: with few requests, P99 beside a slow endpoint is longer or shorter",
		&peakLife, func() float64 { return p99(besideSlow(PeakEWMA{})) }, 1, -1)
	pending := stallPending
	modeltest.Check(t, "stallPending: slow requests are taken for stalls more or less often",
		&pending, func() float64 { return stallsOfSlow(pending) }, 1, -1)
	modeltest.Check(t, "stallPending: a frozen endpoint gets fewer or more requests until it counts as stalled",
		&pending, func() float64 { return requestsToStall(pending) }, -1, 1)
	modeltest.Check(t, "drawUpTo: while three of four endpoints are busy, more or fewer picks are of a busy one",
		&drawUpTo, func() float64 { busy, _ := drawsOfBusy(); return busy }, 1, -1)
	modeltest.Check(t, "drawUpTo: then a pick draws less or hardly more often",
		&drawUpTo, func() float64 { _, draws := drawsOfBusy(); return draws }, -1, 0)
}

// idle is three endpoints that get 20 requests a second, at random times: nearly always all have none.
type idle struct {
	Set
	rnd *rand.Rand
	now time.Duration
}

func newIdle(p Policy, seed uint64) *idle {
	i := &idle{Set: Set{Policy: p}, rnd: rand.New(rand.NewPCG(seed, 1)), now: sec}
	i.Update(numbered(3, even))
	return i
}

// run sends requests for a time. It returns their latencies. Endpoints take 5 ms, and so many times as long.
func (i *idle) run(lasts time.Duration, times [3]float64) (took []float64) {
	for end := i.now + lasts; i.now < end; i.now += time.Duration(i.rnd.ExpFloat64() * float64(50*ms)) {
		e := i.Pick(Query{Now: i.now, Rand: i.rnd})
		latency := time.Duration(math.Exp(i.rnd.NormFloat64()*.3) * times[e.index] * float64(5*ms))
		e.answer(i.now+latency, latency)
		took = append(took, latency.Seconds())
	}
	return took
}

var slowFirst, quickFirst = [3]float64{8, 1, 1}, [3]float64{1, 8, 8}

// besideSlow returns the latencies of requests if one endpoint takes eight times as long as the others.
func besideSlow(p Policy) (took []float64) {
	for seed := range uint64(30) {
		i := newIdle(p, seed)
		i.run(10*sec, slowFirst)
		took = append(took, i.run(60*sec, slowFirst)...)
	}
	return took
}

// meanOnceQuick returns the mean latency in the five seconds after that endpoint and the others have changed places.
func meanOnceQuick() float64 {
	var took []float64
	for seed := range uint64(200) {
		i := newIdle(LeastPending{}, seed)
		i.run(10*sec, slowFirst)
		took = append(took, i.run(5*sec, quickFirst)...)
	}
	return mean(took)
}

func mean(x []float64) (mean float64) {
	for _, x := range x {
		mean += x
	}
	return mean / float64(len(x))
}

func p99(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)*99/100]
}

// stalledWith is Stalled with another stallPending.
func (w *Work) stalledWith(pending int, now, after time.Duration) bool {
	as := *w
	as.pending += stallPending - pending
	return as.Stalled(now, after)
}

// stallsOfSlow returns how many of 100,000 endpoints with one to four requests are taken for stalled, since all these take
// longer than three medians.
func stallsOfSlow(pending int) (n float64) {
	rnd := rand.New(rand.NewPCG(1, 2))
	const after = 3 * ms
	for i := range 100_000 {
		var w Work
		quick := false
		for range 1 + i%4 {
			w.begin(0)
			quick = quick || math.Exp(rnd.NormFloat64()*.7)*float64(ms) < float64(after)
		}
		if !quick && w.stalledWith(pending, after, after) {
			n++
		}
	}
	return n
}

// requestsToStall returns how many requests a frozen endpoint gets, one each 10 ms, until it counts as stalled.
func requestsToStall(pending int) (n float64) {
	var w Work
	for now := sec; !w.stalledWith(pending, now, 3*ms); now += 10 * ms {
		w.begin(now)
		n++
	}
	return n
}

// counted counts the numbers that a pick draws.
type counted struct {
	Rand
	n int
}

// Uint64 implements Rand.
func (c *counted) Uint64() uint64 {
	c.n++
	return c.Rand.Uint64()
}

// stalledSet returns a set of 100 endpoints, of which so many can't be picked.
func stalledSet(p Policy, n int) *Set {
	s := &Set{Policy: p, Stall: Stall{After: ms, Probe: time.Hour}}
	s.Update(numbered(100, even))
	for i := range n {
		s.At(i).Start(0)
		s.At(i).Start(0)
	}
	return s
}

// drawsOfBusy returns the share of picks that are of a busy endpoint, and how many endpoints a pick draws.
func drawsOfBusy() (busy, draws float64) {
	s, rnd := &Set{}, counted{Rand: rand.NewPCG(1, 2)}
	s.Update(numbered(40, even))
	for i := range 30 {
		s.At(i).Start(0)
	}
	const n = 10_000
	for range n {
		if e := s.Pick(Query{Now: ms, Rand: &rnd}); e.pending > 0 {
			busy += 1.0 / n
		}
	}
	return busy, float64(rnd.n) / n
}
