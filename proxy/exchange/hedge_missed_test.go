package exchange_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/registry"
)

// TestMissedHedgesLimited: a hedge that finds every slot taken is tried elsewhere, but only
// twice, and not with a large body.
func TestMissedHedgesLimited(t *testing.T) {
	for _, c := range []struct {
		body   int
		hedges uint64
	}{
		{10, 3},         // one, and two after misses
		{64 << 10, 3},   // at the limit
		{64<<10 + 1, 1}, // one above it
		{1_000_000, 1},
	} {
		t.Run(fmt.Sprint(c.body), func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 6, Provider: "max_concurrency: 1", Service: proxytest.HedgeOn})
			var eps []registry.Endpoint
			var calls []*proxytest.Call
			for i, a := range m.Apps {
				a.FrozenUntil = m.W.Now() + 500*time.Millisecond
				eps = append(eps, m.Endpoint(i))
				calls = append(calls, m.Post(10, "x-remora-attempt: 1")) // not hedged itself
			}
			calls[0] = m.Post(c.body)
			for i := len(calls) - 1; i >= 0; i-- {
				takeSlot(m, i, calls[i])
			}
			m.Consumer.Update("compute", eps...)
			m.OK(calls...)
			m.Settled()
			if s := m.Consumer.Stats("compute"); s.Hedges != c.hedges || s.HedgesMissed != c.hedges {
				t.Errorf("%d hedges, %d missed; want %d, all missed", s.Hedges, s.HedgesMissed, c.hedges)
			}
		})
	}
}

// takeSlot makes c take the slot of the application i.
func takeSlot(m *proxytest.Mesh, i int, c *proxytest.Call) {
	m.T.Helper()
	m.Consumer.Update("compute", m.Endpoint(i))
	m.Do(c)
	busy := func() bool { used, _ := m.Nodes[1+i].Proc.Slots("local"); return used == 1 }
	if !m.W.RunUntil(busy, time.Second) {
		m.T.Fatal("the slot is not taken")
	}
}

// TestRefusedHedgeFollowed: a hedge that a provider refuses for any want of room is missed, and another one follows to
// another endpoint.
func TestRefusedHedgeFollowed(t *testing.T) {
	const ms = time.Millisecond
	occupy := func(m *proxytest.Mesh) *proxytest.Call {
		c := m.Post(10, "x-remora-attempt: 1") // not hedged itself
		m.Consumer.Update("compute", m.Endpoint(1))
		m.Do(c)
		m.W.Run(10 * ms)
		return c
	}
	for name, c := range map[string]struct {
		provider string
		takes    time.Duration // the request that takes the room
	}{
		"no slot":          {"max_concurrency: 1", 300 * ms},
		"too many pending": {"max_pending: 1", 300 * ms},
		"rate limited":     {"rate_limit: {rate: 1, burst: 1}", ms},
	} {
		t.Run(name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Provider: c.provider, Service: "idempotent: true, timeout: 2s, " +
				"retry: {on: [connect, refused]}, hedge: {mode: on, delay: 5ms, budget: 1}"})
			m.Apps[1].Delay = func() time.Duration { return c.takes }
			other := occupy(m)
			m.Apps[0].FrozenUntil = m.W.Now() + 200*ms
			m.Consumer.Update("compute", m.Endpoint(0))
			call := m.Post(10)
			m.Do(call)
			m.W.Run(ms)
			m.Consumer.Update("compute", m.Endpoint(0), m.Endpoint(1))
			m.W.Run(6 * ms)
			m.Consumer.Update("compute", m.Endpoint(0), m.Endpoint(1), m.Endpoint(2))
			m.OK(call, other)
			m.Settled()
			if s := m.Consumer.Stats("compute"); s.Hedges != 2 || s.HedgesMissed != 1 || s.HedgesWon != 1 || call.Took > 50*ms {
				t.Errorf("%d hedges, %d missed, %d won after %v, want 2, 1, 1 after about 12 ms", s.Hedges, s.HedgesMissed, s.HedgesWon, call.Took)
			}
		})
	}
}

// TestRefusedHedgesSayNothing: a hedge that no application saw does not count as one that saved
// nothing, else a route would soon hedge less.
func TestRefusedHedgesSayNothing(t *testing.T) {
	const rounds = 200 // many more than are judged at once
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 2, Provider: "max_concurrency: 1", Service: "idempotent: true, timeout: 2s, hedge: {mode: on, delay: 5ms, budget: 1}"})
	for range rounds {
		calls := []*proxytest.Call{m.Post(64<<10 + 1), m.Post(10, "x-remora-attempt: 1")}
		for i := range m.Apps { // the second slot is taken by a request that the consumer has not sent
			m.Apps[1-i].FrozenUntil = m.W.Now() + 60*time.Millisecond
			takeSlot(m, 1-i, calls[1-i])
		}
		m.Consumer.Update("compute", m.Endpoint(0), m.Endpoint(1))
		m.OK(calls...)
	}
	m.Settled()
	var route stats.RouteReport
	m.Consumer.Loop.Do(func() { route = m.Consumer.Proc.Workers()[0].Report(stats.Verdicts).Services[0].Routes[0] })
	if n := route.Counts.HedgesMissed; n < rounds/2 || route.Effect.OneIn != 1 {
		t.Errorf("after %d refused hedges one in %d decisions may hedge, want each", n, route.Effect.OneIn)
	}
}
