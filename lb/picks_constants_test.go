package lb

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/modeltest"
)

// TestConstantsOfPicks shows what happens at half and at twice each constant that is no variable, since many requests read
// it. What uses the constant here takes its value from the test, or runs on a clock that is as much quicker or slower.
func TestConstantsOfPicks(t *testing.T) {
	life := latencyLife
	modeltest.Check(t, "latencyLife: an endpoint that was slow gets its next request earlier or later",
		&life, func() float64 { return secondsToNextTry(life) }, -1, 1)
	modeltest.Check(t, "latencyLife: of an endpoint with few requests, a latency to compare is known for less or more of the time",
		&life, func() float64 { return knownWithFewRequests(life) }, -1, 1)
	half := peakLife
	modeltest.Check(t, "peakLife: an endpoint that froze is avoided for a shorter or longer time",
		&half, func() float64 { return secondsAfterPeak(half) }, -1, 1)
	pending := stallPending
	modeltest.Check(t, "stallPending: slow requests are taken for stalls more or less often",
		&pending, func() float64 { return stallsOfSlow(pending) }, 1, -1)
	modeltest.Check(t, "stallPending: a frozen endpoint gets fewer or more requests until it counts as stalled",
		&pending, func() float64 { return requestsToStall(pending) }, -1, 1)
	tries := drawTries
	modeltest.Check(t, "drawTries: among 100 endpoints of which 60 can't be picked, a pick costs more or less",
		&tries, func() float64 { return costOfDraws(tries, 60) }, 1, -1)
	modeltest.Check(t, "drawTries: among 100 endpoints of which 99 can't be picked, a pick costs less or more",
		&tries, func() float64 { return costOfDraws(tries, 99) }, -1, 1)
	walk := ringWalk
	modeltest.Check(t, "ringWalk: if 95 of 100 endpoints can't be picked, more or fewer keys have no endpoint of their own",
		&walk, func() float64 { lost, _ := walks(walk, 95); return lost }, 1, -1)
	modeltest.Check(t, "ringWalk: if no endpoint can be picked, a pick looks at fewer or more points",
		&walk, func() float64 { _, steps := walks(walk, 100); return steps }, -1, 1)
	modeltest.Check(t, "drawUpTo: while three of four endpoints are busy, more or fewer picks are of a busy one",
		&drawUpTo, func() float64 { busy, _ := drawsOfBusy(); return busy }, 1, -1)
	modeltest.Check(t, "drawUpTo: then a pick draws less or hardly more often",
		&drawUpTo, func() float64 { _, draws := drawsOfBusy(); return draws }, -1, 0)
}

// secondsToNextTry returns how long a slow latency is recent, if it is so for a life.
func secondsToNextTry(life time.Duration) float64 {
	var r Recent
	r.Add(sec, ms)
	now := time.Duration(0)
	for r.At(sec+now*latencyLife/life) > 0 {
		now += 10 * ms
	}
	return now.Seconds()
}

// knownWithFewRequests returns for which part of the time there is a recent latency with a request each 2 s, at random.
func knownWithFewRequests(life time.Duration) (part float64) {
	const n = 100_000
	var r Recent
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range time.Duration(n) {
		now := sec + i*10*ms*latencyLife/life
		if rnd.IntN(200) == 0 {
			r.Add(now, ms)
		}
		if r.At(now) > 0 {
			part += 1.0 / n
		}
	}
	return part
}

// secondsAfterPeak returns after what time a peak of 50 ms is below twice the usual latency of 2 ms, with 100 responses a
// second.
func secondsAfterPeak(life time.Duration) float64 {
	clock := func(now time.Duration) time.Duration { return now * peakLife / life }
	var p peak
	p.add(0, 50*ms)
	now := time.Duration(0)
	for p.at(clock(now)) > float64(4*ms) {
		now += 10 * ms
		p.add(clock(now), 2*ms)
	}
	return now.Seconds()
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

// drawing is Random with another drawTries.
type drawing int

// Choose implements Policy.
func (n drawing) Choose(v *View) *Endpoint {
	for range int(n) {
		if e := v.Draw(); v.Eligible(e) {
			return e
		}
	}
	return v.drawOfEligible()
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

// costOfDraws returns how many random numbers a pick takes.
func costOfDraws(tries, stalled int) float64 {
	s, rnd := stalledSet(drawing(tries), stalled), counted{Rand: rand.NewPCG(1, 2)}
	const n = 10_000
	for range n {
		s.Pick(Query{Now: sec, Rand: &rnd})
	}
	return float64(rnd.n) / n
}

// walks returns how many of 10,000 keys find no endpoint that can be picked within so many points of the ring, and at how
// many points a pick looks.
func walks(most, stalled int) (lost, steps float64) {
	s := stalledSet(ConsistentHash{}, stalled)
	r, v := s.peers.all.ring, &View{Query: Query{Now: sec}, set: s, group: &s.peers.all}
	for key := range uint64(10_000) {
		i, found := r.search(uint32(mix(key)>>32)), false
		for range most {
			steps += 1.0 / 10_000
			if found = v.Eligible(r.members[r.points[i].owner].Endpoint); found {
				break
			}
			i = (i + 1) % len(r.points)
		}
		if !found {
			lost++
		}
	}
	return lost, steps
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
