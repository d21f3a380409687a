package exchange_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/registry"
)

// TestHedgeDuringFreeze: a request at a frozen replica is hedged after the delay.
func TestHedgeDuringFreeze(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{Service: proxytest.HedgeOn}, func(t *testing.T, m *proxytest.Mesh) {
		m.WarmUp(20)
		var calls []*proxytest.Call
		for _, a := range m.Apps[:1] {
			a.FrozenUntil = m.W.Now() + 50*time.Millisecond
		}
		for range 3 { // one of them meets the frozen replica
			c := m.Post(10)
			m.Do(c)
			calls = append(calls, c)
		}
		m.OK(calls...)
		for _, c := range calls {
			if c.Took > 12*time.Millisecond {
				t.Errorf("call %s took %v, want about the delay of 5 ms and a service time of 1 ms", c.Nonce, c.Took)
			}
		}
		s := m.Consumer.Stats("compute")
		if s.Hedges == 0 || s.HedgesWon == 0 {
			t.Errorf("%d hedges sent, %d won, want some", s.Hedges, s.HedgesWon)
		}
		m.Settled()
	})
}

// TestLoserInQueueCancelled: the attempt that lost against a hedge is cancelled. If the
// provider still has it in its queue, it never reaches the application.
func TestLoserInQueueCancelled(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Service: proxytest.HedgeOn, Provider: "max_concurrency: 1"})
	m.WarmUp(20)
	served := m.Apps[0].Served
	m.Apps[0].FrozenUntil = m.W.Now() + 50*time.Millisecond
	calls := m.Burst(9, 10)
	m.OK(calls...)
	m.Settled()
	if n := m.Apps[0].Served - served; n > 1 {
		t.Errorf("the frozen application served %d requests after its freeze, want only the one it had", n)
	}
}

// TestGates: each gate closes in its case, and is counted.
func TestGates(t *testing.T) {
	cases := []struct {
		name    string
		o       proxytest.MeshOptions
		headers []string
		gate    hedge.Gate
	}{
		{"not idempotent", proxytest.MeshOptions{Service: `hedge: {mode: on, delay: 5ms}`}, nil, hedge.NotIdempotent},
		{"idempotent by header", proxytest.MeshOptions{Service: `hedge: {mode: on, delay: 5ms}`},
			[]string{"x-remora-idempotent: 1"}, hedge.Open},
		{"cascade by attempt", proxytest.MeshOptions{Service: proxytest.HedgeOn}, []string{"x-remora-attempt: 1"}, hedge.Cascade},
		{"cascade by trace state", proxytest.MeshOptions{Service: proxytest.HedgeOn}, []string{"tracestate: a=b,remora=h", "traceparent: " + proxytest.SampledParent}, hedge.Cascade},
		{"trace state without a trace", proxytest.MeshOptions{Service: proxytest.HedgeOn}, []string{"tracestate: remora=h", "traceparent: x"}, hedge.Open},
		{"no endpoint", proxytest.MeshOptions{Service: proxytest.HedgeOn, Apps: 1}, nil, hedge.NoEndpoint},
		{"deadline", proxytest.MeshOptions{Service: `idempotent: true, timeout: 5ms, hedge: {mode: on, delay: 4500us}`}, nil, hedge.Deadline},
		{"open", proxytest.MeshOptions{Service: proxytest.HedgeOn}, nil, hedge.Open},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := proxytest.NewMesh(t, c.o)
			m.WarmUp(150)
			before := *m.Consumer.Stats("compute")
			m.Apps.Slow(50 * time.Millisecond)
			m.Complete(m.Post(10, c.headers...))
			after := m.Consumer.Stats("compute")
			for g := range after.Gates {
				n := after.Gates[g] - before.Gates[g]
				if want := hedge.Gate(g) == c.gate; want != (n > 0) {
					t.Errorf("gate %v counted %d", hedge.Gate(g), n)
				}
			}
			m.Settled()
		})
	}
}

// TestBudget: hedges and paid retries stay within the budget when every response is slow.
func TestBudget(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Service: `idempotent: true, hedge: {mode: on, delay: 1ms, budget: 0.05}`})
	m.Apps.Slow(4 * time.Millisecond)
	all := m.Crowd(20, 100, 10)
	m.OK(all...)
	m.Settled()
	s := m.Consumer.Stats("compute")
	const burst = 10 // at least; a second adds 0.05 × its requests
	if limit := uint64(0.05*2000) + burst + uint64(0.05*2000); s.Hedges > limit {
		t.Errorf("%d hedges for %d requests, over %d", s.Hedges, s.Requests, limit)
	}
	if s.Gates[hedge.Budget] == 0 {
		t.Error("the budget gate never closed")
	}
}

// TestHedgeNeverQueues: a provider with a slot limit and no free slot refuses a hedge at
// once.
func TestHedgeNeverQueues(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 2, Service: `idempotent: true, hedge: {mode: on, delay: 5ms}`,
		Provider: "max_concurrency: 1"})
	hedged := 0
	for _, a := range m.Apps {
		a.Delay = func() time.Duration { return 30 * time.Millisecond }
		a.OnRequest = func(req *protocol.Request) {
			if protocol.Find(req.Headers, "x-remora-attempt") != nil {
				hedged++
			}
		}
	}
	calls := m.Burst(2, 10)
	m.OK(calls...)
	m.Settled()
	if s := m.Consumer.Stats("compute"); hedged > 0 || s.Hedges == 0 {
		t.Errorf("%d hedges sent, %d reached a busy application; want some and none", s.Hedges, hedged)
	}
}

// TestBadResponseWaitsForHedge: a bad response is held back while a hedge is in flight,
// whose good response wins.
func TestBadResponseWaitsForHedge(t *testing.T) {
	for bad := range 2 {
		t.Run(fmt.Sprint("bad ", bad), func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 2, Service: proxytest.HedgeOn})
			m.Apps[bad].Status = 500
			m.Apps[bad].Delay = func() time.Duration { return 10 * time.Millisecond }
			m.Apps[1-bad].Delay = func() time.Duration { return 20 * time.Millisecond }
			c := m.Complete(m.Post(10))
			m.OK(c)
			m.Settled()
		})
	}
}

// TestRefusedHedgeAndReset: a hedge that is refused for lack of a slot does not decide the
// result. If the connection of the other attempt is reset, the reset decides.
func TestRefusedHedgeAndReset(t *testing.T) {
	for _, lostFirst := range []bool{true, false} {
		t.Run(fmt.Sprint("lost before the refusal ", lostFirst), func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 2, Provider: "max_concurrency: 1",
				Service: proxytest.Fields(proxytest.HedgeOn, "retry: {attempts: 1, on: [reset]}")})
			for _, a := range m.Apps {
				a.FrozenUntil = m.W.Now() + 50*time.Millisecond
			}
			taken, lost := m.Post(10, "x-remora-attempt: 1"), m.Post(10) // taken is not hedged itself
			takeSlot(m, 1, taken)
			takeSlot(m, 0, lost)
			m.Consumer.Update("compute", m.Endpoint(0), m.Endpoint(1))
			sent := func() bool { return m.Consumer.Stats("compute").Hedges > 0 }
			if !m.W.RunUntil(sent, time.Second) {
				t.Fatal("no hedge was sent")
			}
			if !lostFirst {
				m.W.Run(2 * time.Millisecond)
			}
			m.W.Faults.ResetAll(m.Consumer.Host, m.Nodes[1].Host)
			m.OK(taken, lost)
			m.Settled()
		})
	}
}

// TestRetryAfterRefusedHedge: if all endpoints were tried because hedges were refused, a
// retry goes to one that refused, and not back to the one that has just failed.
func TestRetryAfterRefusedHedge(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 2, Provider: "max_concurrency: 1",
		Service: proxytest.Fields(proxytest.HedgeOn, "retry: {attempts: 1, on: [connect, reset]}")})
	for _, a := range m.Apps {
		a.FrozenUntil = m.W.Now() + 50*time.Millisecond
	}
	taken, lost := m.Post(10, "x-remora-attempt: 1"), m.Post(10) // taken is not hedged itself
	takeSlot(m, 1, taken)
	takeSlot(m, 0, lost)
	m.Consumer.Update("compute", m.Endpoint(0), m.Endpoint(1))
	if !m.W.RunUntil(func() bool { return m.Consumer.Stats("compute").Hedges > 0 }, time.Second) {
		t.Fatal("no hedge was sent")
	}
	m.W.Run(2 * time.Millisecond) // the refusal has arrived
	m.W.Faults.Crash(m.Apps[0].Loop)
	m.OK(taken, lost)
	m.Settled()
}

// TestRefusedHedgeSawNothing: a hedge that was refused for lack of a slot was at no application. If nothing
// could be sent to the other endpoint, that is what the caller gets.
func TestRefusedHedgeSawNothing(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 2, Provider: "max_concurrency: 1",
		Service: proxytest.Fields(proxytest.HedgeOn, "retry: {on: []}")})
	m.Apps[1].FrozenUntil = m.W.Now() + time.Second
	first, second := m.Nodes[1].Host+":15006", m.Nodes[2].Host+":15006"
	m.Consumer.Update("compute", registry.Endpoint{Addr: second, Weight: 1})
	taken := m.Post(10, "x-remora-attempt: 1") // not hedged itself
	m.Do(taken)
	m.RunUntil("a full endpoint", func() bool { used, _ := m.Nodes[2].Proc.Slots("local"); return used == 1 })
	m.W.Faults.Blackhole(first, true)
	m.Consumer.Update("compute", registry.Endpoint{Addr: first, Weight: 1})
	unsent := m.Post(10)
	m.Do(unsent)
	m.W.Run(time.Millisecond)
	m.Consumer.Update("compute", registry.Endpoint{Addr: first, Weight: 1}, registry.Endpoint{Addr: second, Weight: 1})
	m.Finish(taken, unsent)
	m.OK(taken)
	if s := m.Consumer.Stats("compute"); s.Hedges == 0 || unsent.Code != "upstream-connect" {
		t.Errorf("%d hedges, then %q, want some and upstream-connect", s.Hedges, unsent.Code)
	}
	m.Settled()
}

// TestSecondHedge: with max: 2 a request whose first hedge is late too is hedged again,
// one delay later, at a third application. Each request has the number of its attempt.
func TestSecondHedge(t *testing.T) {
	for most, want := range map[int]struct {
		attempts []string
		within   time.Duration
	}{
		1: {[]string{"", "1"}, 150 * time.Millisecond},
		2: {[]string{"", "1", "2"}, 15 * time.Millisecond},
	} {
		proxytest.EachTopology(t, proxytest.MeshOptions{Service: fmt.Sprintf(`idempotent: true, timeout: 2s, hedge: {mode: on, delay: 5ms, max: %d}`, most)},
			func(t *testing.T, m *proxytest.Mesh) {
				var attempts []string
				at := map[*proxytest.App]int{}
				for _, a := range m.Apps {
					a.OnRequest = func(req *protocol.Request) {
						at[a]++
						attempts = append(attempts, string(protocol.Find(req.Headers, "x-remora-attempt")))
						if len(attempts) <= 2 {
							a.FrozenUntil = m.W.Now() + 100*time.Millisecond
						}
					}
				}
				c := m.Complete(m.Post(10))
				m.OK(c)
				m.Settled()
				if !slices.Equal(attempts, want.attempts) || len(at) != len(attempts) {
					t.Errorf("max %d: attempts %q at %d applications, want %q at as many", most, attempts, len(at), want.attempts)
				}
				if c.Took > want.within {
					t.Errorf("max %d: it took %v, want at most %v", most, c.Took, want.within)
				}
			})
	}
}

// TestHedgeHeader: a trusted client turns hedging off with x-remora-hedge: off. Other
// values are ignored, and the header is not passed on.
func TestHedgeHeader(t *testing.T) {
	for _, c := range []struct {
		header string
		hedges uint64
	}{{"x-remora-hedge: off", 0}, {"X-Remora-Hedge: off", 0}, {"x-remora-hedge: on", 1}, {"x-none: off", 1}} {
		proxytest.EachTopology(t, proxytest.MeshOptions{Service: proxytest.HedgeOn}, func(t *testing.T, m *proxytest.Mesh) {
			for _, a := range m.Apps {
				a.Delay = func() time.Duration { return 8 * time.Millisecond }
				a.OnRequest = func(req *protocol.Request) {
					if protocol.Find(req.Headers, "x-remora-hedge") != nil {
						t.Error("the application received x-remora-hedge")
					}
				}
			}
			k := m.Post(10, c.header)
			plain := m.Post(10)
			m.Do(k, plain)
			m.Finish(k)
			if n := m.Consumer.Stats("compute").Hedges; n != c.hedges {
				t.Errorf("%s: %d hedges, want %d", c.header, n, c.hedges)
			}
			m.Finish(plain)
			m.OK(k, plain)
			m.Settled()
			if n := m.Consumer.Stats("compute").Hedges; n != c.hedges+1 {
				t.Errorf("%d hedges after one more request without the header", n)
			}
		})
	}
}

// TestHedgeHeaderUntrusted: the header of a client that is not on loopback is ignored.
func TestHedgeHeaderUntrusted(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Service: proxytest.HedgeOn, Egress: "0.0.0.0:15001"})
	m.Apps.Slow(8 * time.Millisecond)
	m.Complete(m.Post(10, "x-remora-hedge: off"))
	m.Settled()
	if n := m.Consumer.Stats("compute").Hedges; n != 1 {
		t.Errorf("%d hedges, want 1", n)
	}
}

// TestReloadKeepsLatency: a route whose policy a reload changes still knows how long its requests take.
func TestReloadKeepsLatency(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Service: "idempotent: true, hedge: {mode: on}"})
	m.WarmUp(200)
	delay := func() time.Duration { return m.Consumer.Report().Services[0].Routes[0].Delay }
	before := delay()
	m.Consumer.Reload(proxytest.ReloadYAML(m, "{service: compute}", "compute: {%s, idempotent: true, timeout: 7s, hedge: {mode: on}}"))
	if after := delay(); after != before || after == 0 {
		t.Errorf("a hedge follows after %v, and after %v before the reload", after, before)
	}
}
