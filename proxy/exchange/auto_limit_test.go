package exchange_test

import (
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestAutoLimitFollowsWorkers: with many more clients than workers, an automatic limit
// keeps all workers busy and the queue out of the application, also after a freeze and
// after the number of workers has changed.
func TestAutoLimitFollowsWorkers(t *testing.T) {
	const service = 10 * time.Millisecond
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Provider: "max_concurrency: auto", Service: "timeout: 10s"})
	a, p := m.Apps[0], m.Nodes[1].Proc
	a.ServeByPool(8, service)
	calls := m.Crowd(64, 400, 10)

	check := func(workers int) {
		t.Helper()
		m.W.Run(3 * time.Second)
		before := a.Served
		var limits []int
		for range 30 {
			m.W.Run(100 * time.Millisecond)
			limits = append(limits, p.SlotLimit("local"))
		}
		if got, all := a.Served-before, workers*int(3*time.Second/service); got < all*9/10 {
			t.Errorf("%d requests served by %d workers, which can serve %d", got, workers, all)
		}
		slices.Sort(limits)
		if median := limits[len(limits)/2]; median < workers || median > 2*workers {
			t.Errorf("the limit was mostly %d for %d workers; all: %v", median, workers, limits)
		}
	}
	check(8)
	a.FrozenUntil = m.W.Now() + 50*time.Millisecond
	check(8)
	a.ServeByPool(4, service)
	check(4)
	a.ServeByPool(16, service)
	check(16)

	m.OK(calls...)
	m.Settled()
}

// TestAutoLimitCountsTimeouts: an application that never responds in time receives fewer
// requests, although there is no response to measure.
func TestAutoLimitCountsTimeouts(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Provider: "max_concurrency: auto", Service: "timeout: 200ms"})
	a, p := m.Apps[0], m.Nodes[1].Proc
	a.ServeByPool(32, 5*time.Millisecond)
	m.Finish(m.Crowd(64, 400, 10)...)
	before := p.SlotLimit("local")
	if before < 32 {
		t.Fatalf("the limit is %d with 32 workers", before)
	}
	a.Delay = func() time.Duration { return time.Hour }
	m.Finish(m.Crowd(128, 20, 10)...)
	if got := p.SlotLimit("local"); got > before/2 {
		t.Errorf("the limit is %d for an application that never responds in time, and was %d", got, before)
	}
	m.Settled()
}

// TestAutoLimitWithoutResponses: the limit of an application that never responds in time stays low, however long that lasts.
func TestAutoLimitWithoutResponses(t *testing.T) {
	for name, healthyFirst := range map[string]bool{"from the start": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Provider: "max_concurrency: auto", Service: "timeout: 200ms"})
			a, p := m.Apps[0], m.Nodes[1].Proc
			if healthyFirst {
				a.ServeByPool(32, 5*time.Millisecond)
				m.Finish(m.Crowd(64, 400, 10)...)
			}
			before := p.SlotLimit("local")
			a.Delay = func() time.Duration { return time.Hour }
			m.Finish(m.Crowd(64, 300, 10)...) // a minute
			if got := p.SlotLimit("local"); got > before {
				t.Errorf("the limit is %d after a minute, and was %d", got, before)
			}
			m.Settled()
		})
	}
}

// TestAutoLimitBehindQueue: requests wait for a slot until shortly before their deadline, so that the application has too little
// time for most of them. The limit rises all the same, to what the application can serve.
func TestAutoLimitBehindQueue(t *testing.T) {
	for name, freeze := range map[string]time.Duration{"at the start": 0, "after a freeze": 2 * time.Second} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Provider: "max_concurrency: auto", Service: "timeout: 200ms"})
			a := m.Apps[0]
			a.ServeByPool(32, 100*time.Millisecond)
			before := m.SendAtRate(1, 220, 3*time.Second)
			m.W.Run(time.Second)
			a.FrozenUntil = m.W.Now() + freeze
			m.Finish(before...)
			m.W.Run(freeze)
			m.Finish(m.SendAtRate(2, 220, 3*time.Second)...)
			calls := m.SendAtRate(3, 220, time.Second)
			m.Finish(calls...)
			m.OK(calls...)
			m.Settled()
		})
	}
}
