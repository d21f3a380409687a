package exchange_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// TestCorrelatedStalls: when all replicas freeze at once, hedges can't help. Hardly any is
// sent, and the gate correlated counts why.
func TestCorrelatedStalls(t *testing.T) {
	const (
		rate   = 2000
		freeze = 100 * time.Millisecond
		every  = 2 * time.Second
		length = 11 * time.Second
	)
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Service: `idempotent: true, timeout: 2s, hedge: {mode: on}`})
	m.Apps.SetLognormalDelays(1)
	calls := m.SendAtRate(1, rate, length)
	during, requests := uint64(0), uint64(0)
	for at := every; at < length-freeze; at += every {
		var before hedge.Counts
		m.W.At(at, func() {
			before = m.Consumer.Stats("compute").Counts
			for _, a := range m.Apps {
				a.FrozenUntil = at + freeze
			}
		})
		m.W.At(at+freeze, func() {
			after := m.Consumer.Stats("compute")
			during += after.Hedges - before.Hedges
			requests += after.Primaries - before.Primaries
		})
	}
	m.FinishAfter(length+time.Second, calls)
	m.OK(calls...)
	m.Settled()
	s := m.Consumer.Stats("compute")
	t.Logf("%d hedges for %d requests during freezes; in all %d for %d, gates %v", during, requests, s.Hedges, s.Primaries, s.Gates)
	if requests < 500 || during*100 > requests {
		t.Errorf("%d hedges for %d requests during the freezes, want at most 1%% of some", during, requests)
	}
	if s.Gates[hedge.Correlated] < requests/2 || s.Hedges == during {
		t.Errorf("gates %v, %d hedges: want correlated in the freezes, and hedges between them", s.Gates, s.Hedges)
	}
}

// TestOverloadGoodput: with all replicas at twice their capacity hedges only add to the
// load. As many requests must succeed as without hedging, whether the provider's sidecar
// refuses the hedges or the replicas queue them.
func TestOverloadGoodput(t *testing.T) {
	for _, c := range []struct {
		name  string
		o     proxytest.MeshOptions
		seeds uint64
		least float64 // of the requests that succeed without hedging
	}{
		// Requests wait nearly as long as their timeout, so how many succeed is chance: 10% more or less.
		{"provider refuses", proxytest.MeshOptions{Provider: "max_concurrency: 1, max_queue: 64",
			Service: "idempotent: true, timeout: 100ms"}, 8, 0.92},
		{"replica queues", proxytest.MeshOptions{OneHop: true, Service: "idempotent: true, timeout: 2s"}, 1, 0.99},
	} {
		t.Run(c.name, func(t *testing.T) {
			without, with := 0, 0
			for seed := range c.seeds {
				c.o.Seed = seed
				n, _ := goodput(t, c.o, "off")
				without += n
				n, s := goodput(t, c.o, "on")
				with += n
				t.Logf("%d succeeded without, %d with hedging; %d hedges, %d missed, %d won, gates %v",
					without, with, s.Hedges, s.HedgesMissed, s.HedgesWon, s.Gates)
				if s.Hedges+s.Gates[hedge.NoEndpoint] == 0 {
					t.Error("no hedge was asked for: the test proves nothing")
				}
			}
			if without == 0 || float64(with) < c.least*float64(without) {
				t.Errorf("%d succeeded with hedging, %d without; want at least %.0f%%", with, without, 100*c.least)
			}
		})
	}
}

// goodput returns the number of requests that succeed in 6 s at twice the capacity of the
// replicas, which serve one request at a time.
func goodput(t *testing.T, o proxytest.MeshOptions, mode string) (n int, s *stats.ServiceStats) {
	const work = 2 * time.Millisecond
	o.Service = proxytest.Fields(o.Service, "hedge: {mode: "+mode+"}")
	m := proxytest.NewMesh(t, o)
	for _, a := range m.Apps {
		var free time.Duration
		a.Delay = func() time.Duration {
			free = max(free, m.W.Now()) + work
			return free - m.W.Now()
		}
	}
	capacity := float64(len(m.Apps)) / work.Seconds()
	calls := m.SendAtRate(1, 2*capacity, 6*time.Second)
	m.FinishAfter(9*time.Second, calls)
	for _, c := range calls {
		if c.Status == 200 {
			n++
		}
	}
	return n, m.Consumer.Stats("compute")
}

// TestUselessHedges: if all replicas are equally slow, hedges can't help. After some
// hundreds that did not win, only probes are sent.
func TestUselessHedges(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Service: `idempotent: true, timeout: 2s, hedge: {mode: on, delay: 5ms, budget: 1}`})
	m.Apps.Slow(8 * time.Millisecond)
	calls := m.SendAtRate(1, 500, 4*time.Second)
	m.FinishAfter(5*time.Second, calls)
	m.OK(calls...)
	s := m.Consumer.Stats("compute")
	if s.Gates[hedge.Useless] < 1000 || s.Hedges > 400 {
		t.Errorf("%d hedges of %d requests, %d won, gates %v; want them to stop", s.Hedges, s.Primaries, s.HedgesWon, s.Gates)
	}
	// From now on every third response is slow: probes find that hedging helps.
	for _, a := range m.Apps {
		n := 0
		a.Delay = func() time.Duration {
			if n++; n%3 == 0 {
				return 40 * time.Millisecond
			}
			return 8 * time.Millisecond
		}
	}
	won := s.HedgesWon
	calls = m.SendAtRate(2, 500, 4*time.Second)
	m.FinishAfter(5*time.Second, calls)
	m.OK(calls...)
	m.Settled()
	if s = m.Consumer.Stats("compute"); s.HedgesWon < won+20 {
		t.Errorf("%d more hedges won, gates %v; want hedging to resume", s.HedgesWon-won, s.Gates)
	}
}

// TestHedgeRefusedWithoutLimit: a provider without a limit refuses hedges while its
// application is stalled or has far more requests than usual. It passes other requests on.
func TestHedgeRefusedWithoutLimit(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 2, Service: `idempotent: true, timeout: 2s, hedge: {mode: on, delay: 5ms}`})
	m.WarmUp(150)
	second := m.Nodes[2]
	m.Apps[1].FrozenUntil = m.W.Now() + 200*time.Millisecond
	m.Consumer.Update("compute", m.Endpoint(1))
	stuck := m.Burst(8, 10)
	pending := func() bool { return second.Proc.Pending() == len(stuck) }
	if !m.W.RunUntil(pending, time.Second) {
		t.Fatal("the requests did not arrive")
	}
	m.W.Run(50 * time.Millisecond)
	m.Apps[0].FrozenUntil = m.W.Now() + 100*time.Millisecond
	hedged := 0
	m.Apps[1].OnRequest = func(req *protocol.Request) {
		if protocol.Find(req.Headers, "x-remora-attempt") != nil {
			hedged++
		}
	}
	// The consumer does not know the load of the second provider yet.
	m.Consumer.Update("compute", m.Endpoint(0))
	late := m.Post(10)
	m.Do(late)
	m.W.Run(2 * time.Millisecond)
	m.Consumer.Update("compute", m.Endpoint(0), m.Endpoint(1))
	if !m.W.RunUntil(func() bool { return m.Consumer.Stats("compute").Hedges > 0 }, time.Second) {
		t.Fatal("no hedge was sent")
	}
	m.OK(append(stuck, late)...)
	m.Settled()
	if s := m.Consumer.Stats("compute"); hedged != 0 || s.HedgesMissed == 0 {
		t.Errorf("%d hedges reached the stalled application, %d missed; want none and some", hedged, s.HedgesMissed)
	}
}

// TestGateChecksLimited: a request checks the gates again until it is hedged. However
// short the delay, the checks are not so frequent that they load the loop.
func TestGateChecksLimited(t *testing.T) {
	for _, delay := range []string{"delay: 1ns", "min_delay: 0s, max_delay: 0s", "delay: p97, min_delay: 0s, max_delay: 0s", "delay: 3us, max: 8"} {
		for _, mode := range []string{"on", "shadow"} {
			t.Run(mode+" "+delay, func(t *testing.T) {
				m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 2, Service: `idempotent: true, timeout: 5s, hedge: {mode: ` + mode + `, budget: 0.04, ` + delay + `}`})
				m.FinishAfter(100*time.Millisecond, m.SendAtRate(1, 2000, 100*time.Millisecond)) // its hedges use all tokens
				before := m.Consumer.Stats("compute").Gates
				asked := func() (n uint64) {
					for g, now := range m.Consumer.Stats("compute").Gates {
						n += now - before[g]
					}
					return n
				}
				for _, a := range m.Apps {
					a.FrozenUntil = m.W.Now() + time.Second
				}
				one := m.Post(10)
				m.Do(one)
				m.W.RunUntil(func() bool { return one.Done || asked() > 10_000 }, 2*time.Second)
				m.OK(one)
				if n := asked(); n > 4_000 {
					t.Errorf("%d checks within a second", n)
				}
			})
		}
	}
}
