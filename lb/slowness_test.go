package lb

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb/log2"
)

// answer counts an attempt with this latency.
func (e *Endpoint) answer(now, latency time.Duration) {
	found := e.Start(now - latency)
	e.Finish(now, latency)
	e.Learn(now, latency, found)
}

// A reported queue shows how many requests the endpoint serves at once. More requests
// than that cost more, until a report shows a change.
func TestCapacity(t *testing.T) {
	_, e := one(t)
	load := func() float64 { return score(e, 0) }
	pending := func(n int) {
		for e.pending < n {
			e.Start(0)
		}
	}
	pending(6)
	e.Report(0, Load{Pending: 6}, 6)
	if load() != 6 {
		t.Errorf("6 pending without a queue: score %v", load())
	}
	e.Report(0, Load{Pending: 6, Queued: 2}, 6)
	if want := 6 + queueCost*3.; load() != want {
		t.Errorf("6 pending at capacity 4: score %v, want %v", load(), want)
	}
	e.Report(0, Load{Pending: 4}, 6)
	if want := 6 + queueCost*3.; load() != want {
		t.Errorf("6 pending at capacity 4, without a queue: score %v, want %v", load(), want)
	}
	for range 40 { // the capacity falls
		e.Report(0, Load{Pending: 6, Queued: 5}, 6)
	}
	if want := 6 + queueCost*6.; math.Abs(load()-want) > 0.01 {
		t.Errorf("6 pending at capacity 1: score %v, want %v", load(), want)
	}
	e.Report(0, Load{Pending: 6}, 6) // and rises
	if want := 6 + queueCost*1.; load() != want {
		t.Errorf("6 pending at capacity 6: score %v, want %v", load(), want)
	}
}

// TestObserve: which capacity follows from a report.
func TestObserve(t *testing.T) {
	for _, c := range []struct {
		was             capacity
		pending, queued int
		want            capacity
	}{
		{0, 6, 0, 0}, {0, 6, 1, 5}, {0, 1, 1, 1}, // the first queue
		{4, 9, 1, 5}, {4, 6, 2, 4}, {1, 6, 1, 2}, {4, 5, 5, 3.25}, // later ones
		{4, 9, 0, 9}, {4, 3, 0, 4}, {1, 3, 0, 3}, // no queue
	} {
		got := c.was
		if got.observe(&Load{Pending: c.pending, Queued: c.queued}); got != c.want {
			t.Errorf("%d of %d are queued, after a capacity of %v: %v, want %v", c.queued, c.pending, c.was, got, c.want)
		}
	}
}

// TestCostOfQueue: the cost of the requests that would have to queue, with one more.
func TestCostOfQueue(t *testing.T) {
	for _, c := range []struct {
		capacity     capacity
		load, queued float64
	}{{0, 9, 0}, {1, 0, 0}, {1, 1, 1}, {4, 2, 0}, {4, 3, 0}, {4, 3.5, .5}, {4, 9, 6}} {
		if got, want := c.capacity.costOfQueue(c.load), queueCost*c.queued; got != want {
			t.Errorf("%v at a capacity of %v: %v, want %v", c.load, c.capacity, got, want)
		}
	}
}

// TestLearnPace: a latency counts with at most four times the mean, and not less than a quarter of it. The first one has no mean.
func TestLearnPace(t *testing.T) {
	for log, want := range map[float64]float64{19: 19, 21: 21, 10: 18, 30: 22} {
		var all pace
		var a, b slowness
		a.learn(sec, 20, &all)
		if all.mean != 20 || a.pace.mean != 20 {
			t.Errorf("the first latency makes the means %v and %v", all.mean, a.pace.mean)
		}
		b.learn(sec+ms, log, &all)
		if b.pace.mean != want || all.mean != (20+want)/2 || all.samples != 2 || all.since != sec {
			t.Errorf("a latency of 2^%v makes the means 2^%v and 2^%v of %v since %v, want 2^%v", log, b.pace.mean, all.mean, all.samples, all.since, want)
		}
	}
}

// TestPaceOfTime: a latency that comes after a longer time counts more, and after the time paceLife it is the mean.
func TestPaceOfTime(t *testing.T) {
	life := time.Duration(paceLife)
	for _, c := range []struct {
		after         time.Duration
		mean, samples float64
	}{{0, 20 + 8./101, 101}, {life / 4, 22, 4}, {life, 28, 1}, {2 * life, 28, 1}} {
		p := pace{mean: 20, samples: 100, at: sec, since: sec}
		if p.add(sec+c.after, 28); math.Abs(p.mean-c.mean) > 1e-9 || math.Abs(p.samples-c.samples) > 1e-9 || p.since != sec || p.at != sec+c.after {
			t.Errorf("after %v: %+v, want a mean of %v of %v", c.after, p, c.mean, c.samples)
		}
	}
}

// TestTrust: a pace has its effect by the number of its samples, and by the time since the first one.
func TestTrust(t *testing.T) {
	for _, c := range []struct {
		samples float64 // with that of the response
		known   time.Duration
		trust   float64
	}{{pacePrior, 10 * sec, .5}, {3 * pacePrior, 10 * sec, .75}, {3 * pacePrior, time.Duration(paceWait) / 3, .25}} {
		all := pace{mean: 20, samples: 1e9, at: 100 * sec}
		s := slowness{pace: pace{mean: 21, samples: c.samples - 1, at: 100 * sec, since: 100*sec - c.known}}
		s.learn(100*sec, 21, &all)
		usual, factor := log2.Exp(20+c.trust), log2.Exp(pacePower*c.trust)
		if math.Abs(s.usual/usual-1) > 1e-6 || math.Abs(s.factor/factor-1) > 1e-6 {
			t.Errorf("%v samples in %v: usual %v and factor %v, want %v and %v", c.samples, c.known, s.usual, s.factor, usual, factor)
		}
	}
}

// The load of an endpoint counts more if it has been slow for long. A single freeze
// changes little, and an almost unknown endpoint counts as average.
func TestPace(t *testing.T) {
	var s Set
	a, b, c := three(&s)
	rnd := rand.New(rand.NewPCG(1, 1))
	now := time.Second
	for range 6000 {
		now += ms
		for _, e := range []*Endpoint{a, b} {
			latency := time.Duration((1 + rnd.Float64()) * float64(ms))
			if e == b {
				latency *= 2
			}
			e.answer(now, latency)
		}
	}
	c.answer(now, ms)
	quick, slow, fresh := a.slowness.factor, b.slowness.factor, c.slowness.factor
	if quick > 0.6 || slow < 1.7 || math.Abs(fresh-1) > 0.1 {
		t.Errorf("load factors: fast %v, slow %v, new %v", quick, slow, fresh)
	}
	for range 5 {
		a.answer(now, time.Minute)
	}
	if froze := a.slowness.factor; froze > 2*quick {
		t.Errorf("load factor after a freeze %v, before %v", froze, quick)
	}
	now += 2 * time.Duration(paceLife)
	b.answer(now, ms)
	if again := b.slowness.factor; again > 1.1 {
		t.Errorf("load factor long after slowness: %v", again)
	}
	s.Update([]Target{{Addr: "b"}})
	a.answer(now, ms) // a was removed
}
