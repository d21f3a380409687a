package lb

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
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
