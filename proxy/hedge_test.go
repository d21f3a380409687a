package proxy_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/registry"
)

const hedgeOn = `, idempotent: true, timeout: 2s, hedge: {mode: on, delay: 5ms}`

// warm sends enough calls for latency estimates to mean something.
func (m *mesh) warm(n int) {
	m.t.Helper()
	var calls []*call
	for range n {
		calls = append(calls, m.post(10))
	}
	m.do(calls...)
	m.finish(calls...)
	m.ok(calls...)
}

func TestHedgeRescuesFromAFreeze(t *testing.T) {
	eachTopology(t, meshOptions{service: hedgeOn}, func(t *testing.T, m *mesh) {
		m.warm(20)
		var calls []*call
		for _, a := range m.apps[:1] {
			a.frozen = m.w.Now() + 50*time.Millisecond
		}
		for range 3 { // one of them meets the frozen replica
			c := m.post(10)
			m.do(c)
			calls = append(calls, c)
		}
		m.finish(calls...)
		m.ok(calls...)
		for _, c := range calls {
			if c.took > 12*time.Millisecond {
				t.Errorf("call %s took %v, want about the delay of 5 ms and a service time of 1 ms", c.nonce, c.took)
			}
		}
		s := m.consumer.stats("compute")
		if s.Hedges == 0 || s.HedgesWon == 0 {
			t.Errorf("%d hedges sent, %d won, want some", s.Hedges, s.HedgesWon)
		}
		m.settled()
	})
}

// The loser of a hedge is withdrawn: one that the provider has still in its
// queue never reaches the application.
func TestLoserInTheQueueIsDropped(t *testing.T) {
	m := newMesh(t, meshOptions{service: hedgeOn, provider: ", max_concurrency: 1"})
	m.warm(20)
	served := m.apps[0].served
	m.apps[0].frozen = m.w.Now() + 50*time.Millisecond
	calls := m.burst(9, 10)
	m.finish(calls...)
	m.ok(calls...)
	m.settled()
	if n := m.apps[0].served - served; n > 1 {
		t.Errorf("the frozen application served %d requests after its freeze, want only the one it had", n)
	}
}

func TestGates(t *testing.T) {
	cases := []struct {
		name    string
		o       meshOptions
		headers []string
		gate    hedge.Gate
	}{
		{"not idempotent", meshOptions{service: `, hedge: {mode: on, delay: 5ms}`}, nil, hedge.NotIdempotent},
		{"idempotent by header", meshOptions{service: `, hedge: {mode: on, delay: 5ms}`},
			[]string{"x-remora-idempotent: 1"}, hedge.Open},
		{"cascade by attempt", meshOptions{service: hedgeOn}, []string{"x-remora-attempt: 1"}, hedge.Cascade},
		{"cascade by trace state", meshOptions{service: hedgeOn}, []string{"tracestate: a=b,remora=h", "traceparent: " + sampledBy}, hedge.Cascade},
		{"trace state without a trace", meshOptions{service: hedgeOn}, []string{"tracestate: remora=h", "traceparent: x"}, hedge.Open},
		{"no endpoint", meshOptions{service: hedgeOn, apps: 1}, nil, hedge.NoEndpoint},
		{"deadline", meshOptions{service: `, idempotent: true, timeout: 5ms, hedge: {mode: on, delay: 4500us}`}, nil, hedge.Deadline},
		{"open", meshOptions{service: hedgeOn}, nil, hedge.Open},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := newMesh(t, c.o)
			m.warm(150)
			before := *m.consumer.stats("compute")
			for _, a := range m.apps {
				a.delay = func() time.Duration { return 50 * time.Millisecond }
			}
			k := m.post(10, c.headers...)
			m.do(k)
			m.finish(k)
			after := m.consumer.stats("compute")
			for g := range after.Gates {
				n := after.Gates[g] - before.Gates[g]
				if want := hedge.Gate(g) == c.gate; want != (n > 0) {
					t.Errorf("gate %v counted %d", hedge.Gate(g), n)
				}
			}
			m.settled()
		})
	}
}

// Hedges and paid retries stay within the budget when every answer is slow.
func TestBudgetBoundsHedges(t *testing.T) {
	m := newMesh(t, meshOptions{service: `, idempotent: true, hedge: {mode: on, delay: 1ms, budget: 0.05}`})
	for _, a := range m.apps {
		a.delay = func() time.Duration { return 4 * time.Millisecond }
	}
	all := m.crowd(20, 100, 10)
	m.finish(all...)
	m.ok(all...)
	m.settled()
	s := m.consumer.stats("compute")
	const burst = 10 // at least; one second's worth is 0.05 × what a second brings
	if limit := uint64(0.05*2000) + burst + uint64(0.05*2000); s.Hedges > limit {
		t.Errorf("%d hedges for %d requests, over %d", s.Hedges, s.Requests, limit)
	}
	if s.Gates[hedge.Budget] == 0 {
		t.Error("the budget gate never closed")
	}
}

// With a slot limit and no slot free, the provider refuses a hedge at once.
func TestHedgeNeverQueues(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 2, service: `, idempotent: true, hedge: {mode: on, delay: 5ms}`,
		provider: ", max_concurrency: 1"})
	hedged := 0
	for _, a := range m.apps {
		a.delay = func() time.Duration { return 30 * time.Millisecond }
		a.seen = func(req *protocol.Request) {
			if protocol.Find(req.Headers, "x-remora-attempt") != nil {
				hedged++
			}
		}
	}
	calls := m.burst(2, 10)
	m.finish(calls...)
	m.ok(calls...)
	m.settled()
	if s := m.consumer.stats("compute"); hedged > 0 || s.Hedges == 0 {
		t.Errorf("%d hedges sent, %d reached a busy application; want some and none", s.Hedges, hedged)
	}
}

// Bad answers lose to a hedge that is still out.
func TestBadAnswerWaitsForTheHedge(t *testing.T) {
	for bad := range 2 {
		t.Run(fmt.Sprint("bad ", bad), func(t *testing.T) {
			m := newMesh(t, meshOptions{apps: 2, service: hedgeOn})
			m.apps[bad].status = 500
			m.apps[bad].delay = func() time.Duration { return 10 * time.Millisecond }
			m.apps[1-bad].delay = func() time.Duration { return 20 * time.Millisecond }
			c := m.post(10)
			m.do(c)
			m.finish(c)
			m.ok(c)
			m.settled()
		})
	}
}

// A hedge that is turned away for want of a slot says nothing about the request:
// when the connection of the other attempt is lost meanwhile, that decides.
func TestRefusedHedgeDoesNotHideALostAttempt(t *testing.T) {
	for _, lostFirst := range []bool{true, false} {
		t.Run(fmt.Sprint("lost before the refusal ", lostFirst), func(t *testing.T) {
			m := newMesh(t, meshOptions{apps: 2, provider: ", max_concurrency: 1",
				service: hedgeOn + ", retry: {attempts: 1, on: [reset]}"})
			for _, a := range m.apps {
				a.frozen = m.w.Now() + 50*time.Millisecond
			}
			first, second := m.nodes[1], m.nodes[2]
			at := func(n *node) registry.Endpoint { return registry.Endpoint{Addr: n.host + ":15006", Weight: 1} }

			// The second provider's slot is taken, unbeknown to the consumer.
			m.consumer.update("compute", at(second))
			taken := m.post(10, "x-remora-attempt: 1") // not hedged itself
			m.do(taken)
			m.w.RunUntil(func() bool { used, _ := second.proc.Slots("local"); return used == 1 }, time.Second)
			m.consumer.update("compute", at(first))
			lost := m.post(10)
			m.do(lost)
			m.w.RunUntil(func() bool { used, _ := first.proc.Slots("local"); return used == 1 }, time.Second)
			m.consumer.update("compute", at(first), at(second))

			sent := func() bool { return m.consumer.stats("compute").Hedges > 0 }
			if !m.w.RunUntil(sent, time.Second) {
				t.Fatal("no hedge was sent")
			}
			if !lostFirst {
				m.w.Run(2 * time.Millisecond)
			}
			m.w.ResetAll(m.consumer.host, first.host)
			m.finish(taken, lost)
			m.ok(taken, lost)
			m.settled()
		})
	}
}

// With every endpoint tried, because hedges were refused at the others, a retry
// goes to one of those and not back to the one that has just failed.
func TestRetryAfterRefusedHedgeAvoidsTheEndpointThatFailed(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 2, provider: ", max_concurrency: 1",
		service: hedgeOn + ", retry: {attempts: 1, on: [connect, reset]}"})
	for _, a := range m.apps {
		a.frozen = m.w.Now() + 50*time.Millisecond
	}
	first, second := m.nodes[1], m.nodes[2]
	at := func(n *node) registry.Endpoint { return registry.Endpoint{Addr: n.host + ":15006", Weight: 1} }
	busy := func(n *node) func() bool {
		return func() bool { used, _ := n.proc.Slots("local"); return used == 1 }
	}
	m.consumer.update("compute", at(second))
	taken := m.post(10, "x-remora-attempt: 1") // not hedged itself
	m.do(taken)
	m.w.RunUntil(busy(second), time.Second)
	m.consumer.update("compute", at(first))
	lost := m.post(10)
	m.do(lost)
	m.w.RunUntil(busy(first), time.Second)
	m.consumer.update("compute", at(first), at(second))
	if !m.w.RunUntil(func() bool { return m.consumer.stats("compute").Hedges > 0 }, time.Second) {
		t.Fatal("no hedge was sent")
	}
	m.w.Run(2 * time.Millisecond) // the refusal is here
	m.w.Crash(m.apps[0].loop)
	m.finish(taken, lost)
	m.ok(taken, lost)
	m.settled()
}

// With max: 2 a request whose first hedge is late as well gets a second one, one
// delay later, at a third application. Applications see which attempt they serve.
func TestSecondHedge(t *testing.T) {
	for most, want := range map[int]struct {
		attempts []string
		within   time.Duration
	}{
		1: {[]string{"", "1"}, 150 * time.Millisecond},
		2: {[]string{"", "1", "2"}, 15 * time.Millisecond},
	} {
		eachTopology(t, meshOptions{service: fmt.Sprintf(`, idempotent: true, timeout: 2s, hedge: {mode: on, delay: 5ms, max: %d}`, most)},
			func(t *testing.T, m *mesh) {
				var attempts []string
				at := map[*app]int{}
				for _, a := range m.apps {
					a.seen = func(req *protocol.Request) {
						at[a]++
						attempts = append(attempts, string(protocol.Find(req.Headers, "x-remora-attempt")))
						if len(attempts) <= 2 {
							a.frozen = m.w.Now() + 100*time.Millisecond
						}
					}
				}
				c := m.post(10)
				m.do(c)
				m.finish(c)
				m.ok(c)
				m.settled()
				if !slices.Equal(attempts, want.attempts) || len(at) != len(attempts) {
					t.Errorf("max %d: attempts %q at %d applications, want %q at as many", most, attempts, len(at), want.attempts)
				}
				if c.took > want.within {
					t.Errorf("max %d: it took %v, want at most %v", most, c.took, want.within)
				}
			})
	}
}

// A caller that wants no hedges gets none, if it can be trusted; the application
// does not hear of its wish, and a wish that is not "off" is none.
func TestCallerOptsOut(t *testing.T) {
	for _, c := range []struct {
		header string
		hedges uint64
	}{{"x-remora-hedge: off", 0}, {"X-Remora-Hedge: off", 0}, {"x-remora-hedge: on", 1}, {"x-none: off", 1}} {
		eachTopology(t, meshOptions{service: hedgeOn}, func(t *testing.T, m *mesh) {
			for _, a := range m.apps {
				a.delay = func() time.Duration { return 8 * time.Millisecond }
				a.seen = func(req *protocol.Request) {
					if protocol.Find(req.Headers, "x-remora-hedge") != nil {
						t.Error("the application saw x-remora-hedge")
					}
				}
			}
			k := m.post(10, c.header)
			plain := m.post(10)
			m.do(k, plain)
			m.finish(k)
			if n := m.consumer.stats("compute").Hedges; n != c.hedges {
				t.Errorf("%s: %d hedges, want %d", c.header, n, c.hedges)
			}
			m.finish(plain)
			m.ok(k, plain)
			m.settled()
			if n := m.consumer.stats("compute").Hedges; n != c.hedges+1 {
				t.Errorf("%d hedges after one more request, which said nothing", n)
			}
		})
	}
}

// Of a caller that is not on loopback the wish is not heeded.
func TestStrangersCanNotOptOut(t *testing.T) {
	m := newMesh(t, meshOptions{service: hedgeOn, egress: "0.0.0.0:15001"})
	for _, a := range m.apps {
		a.delay = func() time.Duration { return 8 * time.Millisecond }
	}
	k := m.post(10, "x-remora-hedge: off")
	m.do(k)
	m.finish(k)
	m.settled()
	if n := m.consumer.stats("compute").Hedges; n != 1 {
		t.Errorf("%d hedges, want 1", n)
	}
}
