package lb

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// answer counts an attempt that took so long.
func (e *Endpoint) answer(now, latency time.Duration) {
	e.Started(now - latency)
	e.Answered(now, latency)
}

// A reported queue says how many requests the endpoint takes at once. One more
// than that weighs more, in each case until a report says otherwise.
func TestQueueIsLearned(t *testing.T) {
	_, e := one(t)
	load := func() float64 { return e.score(0) }
	pending := func(n int) {
		for e.pending < n {
			e.Started(0)
		}
	}
	pending(6)
	e.Report(0, Load{Pending: 6}, 6)
	if load() != 6 {
		t.Errorf("6 pending weigh %v, with no queue", load())
	}
	e.Report(0, Load{Pending: 6, Queued: 2}, 6)
	if want := 6 + queueCost*3.; load() != want {
		t.Errorf("6 pending where 4 are taken at once weigh %v, want %v", load(), want)
	}
	e.Report(0, Load{Pending: 4}, 6)
	if want := 6 + queueCost*3.; load() != want {
		t.Errorf("they weigh %v when the queue has gone, want %v still", load(), want)
	}
	for range 40 { // the limit goes down
		e.Report(0, Load{Pending: 6, Queued: 5}, 6)
	}
	if want := 6 + queueCost*6.; math.Abs(load()-want) > 0.01 {
		t.Errorf("6 pending where 1 is taken at once weigh %v, want %v", load(), want)
	}
	e.Report(0, Load{Pending: 6}, 6) // and up
	if want := 6 + queueCost*1.; load() != want {
		t.Errorf("6 pending where 6 are taken at once weigh %v, want %v", load(), want)
	}
}

// An endpoint that is slow for long weighs more, one that froze for a moment
// hardly, and one of which next to nothing is known not at all.
func TestPace(t *testing.T) {
	var s Set
	a, b, c := three(&s)
	rnd := rand.New(rand.NewPCG(1, 1))
	now := time.Second
	for range 2000 {
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
	quick, slow, fresh := a.drag(), b.drag(), c.drag()
	if quick > 1./4 || slow < 2 || math.Abs(fresh-1) > 0.1 {
		t.Errorf("the quick one weighs %v, the slow %v, the new %v", quick, slow, fresh)
	}
	for range 5 {
		a.answer(now, time.Minute)
	}
	if froze := a.drag(); froze > 2*quick {
		t.Errorf("the quick one weighs %v after a freeze, and %v before", froze, quick)
	}
	now += 2 * paceLife
	b.answer(now, ms)
	if again := b.drag(); again > 1.1 {
		t.Errorf("what was slow long ago weighs %v", again)
	}
	s.Update([]Target{{Addr: "b"}})
	a.answer(now, ms)
	if a.drag() != 1 {
		t.Errorf("a removed one weighs %v", a.drag())
	}
}
