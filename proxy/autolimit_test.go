package proxy_test

import (
	"slices"
	"testing"
	"time"
)

// pool makes a an application of some workers, behind a queue of its own, whose
// service times are uniform about mean.
func (a *app) pool(workers int, mean time.Duration) {
	free := make([]time.Duration, workers) // when each worker has nothing to do
	rnd := a.m.w.Rand()
	a.delay = func() time.Duration {
		slices.Sort(free)
		service := mean/2 + time.Duration(rnd.Int64N(int64(mean)))
		free[0] = max(free[0], a.loop.Now()) + service
		return free[0] - a.loop.Now()
	}
}

// With many more clients than the application has workers, an automatic limit
// keeps the queue out of the application and all of its workers busy, also when
// it has frozen, and when it has lost workers or got more.
func TestAutoLimitFindsTheApplication(t *testing.T) {
	const service = 10 * time.Millisecond
	m := newMesh(t, meshOptions{apps: 1, provider: ", max_concurrency: auto", service: ", timeout: 10s"})
	a, p := m.apps[0], m.nodes[1].proc
	a.pool(8, service)
	calls := m.crowd(64, 400, 10)

	check := func(workers int) {
		t.Helper()
		m.w.Run(3 * time.Second)
		before := a.served
		var limits []int
		for range 30 {
			m.w.Run(100 * time.Millisecond)
			limits = append(limits, p.SlotLimit("local"))
		}
		if got, all := a.served-before, workers*int(3*time.Second/service); got < all*9/10 {
			t.Errorf("%d requests served by %d workers that could have served %d", got, workers, all)
		}
		slices.Sort(limits)
		if median := limits[len(limits)/2]; median < workers || median > 2*workers {
			t.Errorf("the limit was mostly %d for %d workers; all: %v", median, workers, limits)
		}
	}
	check(8)
	a.frozen = m.w.Now() + 50*time.Millisecond
	check(8)
	a.pool(4, service)
	check(4)
	a.pool(16, service)
	check(16)

	m.finish(calls...)
	m.ok(calls...)
	m.settled()
}

// An application that answers nothing in time gets fewer requests, although
// there is no answer to measure.
func TestAutoLimitCountsWhatWasGivenUp(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, provider: ", max_concurrency: auto", service: ", timeout: 200ms"})
	a, p := m.apps[0], m.nodes[1].proc
	a.pool(32, 5*time.Millisecond)
	m.finish(m.crowd(64, 400, 10)...)
	before := p.SlotLimit("local")
	if before < 32 {
		t.Fatalf("the limit is %d with 32 workers", before)
	}
	a.delay = func() time.Duration { return time.Hour }
	m.finish(m.crowd(128, 20, 10)...)
	if got := p.SlotLimit("local"); got > before/2 {
		t.Errorf("the limit is %d for an application that never answers in time, and was %d", got, before)
	}
	m.settled()
}
