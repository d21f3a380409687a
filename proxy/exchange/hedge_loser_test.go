package exchange_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// TestRetryBesideRefusedHedge: a refused hedge does not decide on a retry; the result of
// the primary does.
func TestRetryBesideRefusedHedge(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 3, Provider: "max_concurrency: 1",
		Service: `idempotent: true, retry: {on: [connect, reset]}, hedge: {mode: on, delay: 5ms}`})
	m.Apps.Slow(20 * time.Millisecond)
	var busy []*proxytest.Call
	for range 3 { // one at each application: hedges find no slot
		c := m.Post(10)
		m.Do(c)
		busy = append(busy, c)
	}
	// The hedges leave after 5 ms; just then the providers' links break, one
	// way of a primary to fail before its hedge is refused.
	m.W.Run(5*time.Millisecond + 600*time.Microsecond)
	m.W.Faults.ResetAll(m.Consumer.Host, m.Nodes[1].Host)
	m.OK(busy...)
	m.Settled()
}

// TestLateResponseOfLoser: the late response to a cancelled attempt counts in the latency of its endpoint. A route learns
// what its hedges save: the primary that a hedge has overtaken counts with the time that its application took.
func TestLateResponseOfLoser(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 2, Service: proxytest.HedgeOn}, func(t *testing.T, m *proxytest.Mesh) {
		m.WarmUp(20)
		m.Apps[0].FrozenUntil = m.W.Now() + 80*time.Millisecond
		calls := []*proxytest.Call{m.Post(10), m.Post(10)}
		m.Do(calls[0])
		m.Do(calls[1])
		m.OK(calls...)
		m.Settled()
		report := func(d stats.Detail) (s stats.ServiceReport) {
			m.Consumer.Loop.Do(func() { s = m.Consumer.Proc.Workers()[0].Report(d).Services[0] })
			return s
		}
		s := report(stats.Forecasts)
		for _, e := range s.Endpoints {
			if e.Addr == m.Endpoint(0).Addr && e.Latency < 4*time.Millisecond {
				t.Errorf("the latency of the frozen one is %v, want one that includes its late response", e.Latency)
			}
		}
		with, ok := s.Routes[0].Effect.With.Quantile(1)
		without, known := s.Routes[0].Effect.Without.Quantile(1)
		if !ok || !known || with > 40*time.Millisecond || without < 70*time.Millisecond {
			t.Errorf("the slowest with hedges took %v (%t) and without %v (%t), want some ms and 80 ms", with, ok, without, known)
		}
		if report(stats.Counters).Routes[0].Effect != nil {
			t.Error("a scrape makes the loop add up latencies that it doesn't report")
		}
	})
}

// TestLoserWithoutResponse: a hedge that has lost, and has no response until the deadline, does not count as one that
// responded then. Neither does a hedge that the provider's sidecar gives up at its own deadline, which is earlier.
func TestLoserWithoutResponse(t *testing.T) {
	for name, o := range map[string]proxytest.MeshOptions{
		"one hop": {OneHop: true, Service: "idempotent: true, timeout: 400ms, cancel: finish, hedge: {mode: on, budget: 1}"},
		"two hops": {
			Service:  "idempotent: true, timeout: 400ms, hedge: {mode: on, budget: 1}",
			Provider: "timeout: 200ms, cancel: finish",
		},
	} {
		t.Run(name, func(t *testing.T) { testLoserWithoutResponse(t, proxytest.NewMesh(t, o)) })
	}
}

func testLoserWithoutResponse(t *testing.T, m *proxytest.Mesh) {
	const ms = time.Millisecond
	primaries, hedges := 0, 0
	for _, a := range m.Apps {
		var takes time.Duration
		a.OnRequest = func(req *protocol.Request) {
			takes = ms
			if protocol.Find(req.Headers, protocol.HeaderAttempt) == nil {
				if primaries++; primaries%20 == 0 {
					takes = 40 * ms
				}
			} else if hedges++; hedges%7 == 0 {
				takes = time.Hour
			}
		}
		a.Delay = func() time.Duration { return takes }
	}
	calls := m.SendAtRate(1, 500, 15*time.Second)
	m.FinishAfter(16*time.Second, calls)
	m.OK(calls...)
	m.Settled()
	r := m.Consumer.Report().Services[0].Routes[0]
	if r.Counts.Hedges < 200 {
		t.Fatalf("%d hedges: too few to test anything", r.Counts.Hedges)
	}
	if r.Choice.Second < time.Second {
		t.Errorf("nine of ten hedges respond within %v; a seventh never do", r.Choice.Second)
	}
}

// TestDesertedEndsSilence: replicas freeze together at random times. The first to respond responds to a request whose
// caller has left. That response is dropped, as it is long. It ends the common silence nevertheless, so hedging learns
// that no hedge would have helped the requests that come next.
func TestDesertedEndsSilence(t *testing.T) {
	const ms, freezes, freeze, between = time.Millisecond, 30, 100 * time.Millisecond, 500 * time.Millisecond
	m := proxytest.NewMesh(t, proxytest.MeshOptions{OneHop: true, Service: "idempotent: true, timeout: 2s, cancel: finish, hedge: {mode: shadow}"})
	var thaw time.Duration
	for _, a := range m.Apps {
		takes := ms
		a.OnRequest = func(req *protocol.Request) {
			takes = max(ms, thaw-m.W.Now())
			if string(req.Path) != "/deserted" && takes > ms {
				takes += 2 * ms
			}
		}
		a.Delay = func() time.Duration { return takes }
		a.Body = func(req *protocol.Request) []byte {
			if string(req.Path) == "/deserted" {
				return make([]byte, shard.LeastShed)
			}
			return fmt.Append(nil, "nonce=", string(protocol.Find(req.Headers, "x-nonce")))
		}
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	at := m.W.Now()
	for range freezes {
		at += between + time.Duration(rnd.Int64N(int64(between)))
		begins := at
		m.W.At(begins, func() {
			thaw = begins + freeze
			for range m.Apps { // one at each
				client := m.Do(m.Get("/deserted"))
				m.W.At(begins+5*ms, client.Leave)
			}
		})
	}
	length := at + between - m.W.Now()
	calls := m.SendAtRate(1, 200, length)
	m.FinishAfter(length, calls)
	m.OK(calls...)
	m.Settled()
	if c := m.Consumer.Report().Services[0].Routes[0].Choice; !c.Known() || c.Gains() {
		t.Errorf("the best delay is %+v; no hedge would have helped", c)
	}
}

// TestLoserFails: a loser that responds late, and with a failure, is a failure of its endpoint, and none of the request.
func TestLoserFails(t *testing.T) {
	for _, status := range []int{200, 404, 500} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{
			OneHop: true, Apps: 2, Service: "idempotent: true, timeout: 2s, cancel: finish, hedge: {mode: on, delay: 5ms, budget: 1}",
		})
		m.WarmUpEach(20)
		before := endpointOutcomes(m)
		arrived := 0
		for _, a := range m.Apps {
			a.Delay = func() time.Duration {
				if arrived++; arrived == 1 {
					a.Status = status
					return 100 * time.Millisecond
				}
				return time.Millisecond
			}
		}
		call := m.Complete(m.Post(10))
		m.OK(call)
		m.Settled()
		got := endpointOutcomes(m)
		for i := range got {
			got[i] -= before[i]
		}
		want := [stats.AttemptOutcomes]uint64{stats.AttemptServed: 2}
		if status == 500 {
			want = [stats.AttemptOutcomes]uint64{stats.AttemptServed: 1, stats.AttemptFailure: 1}
		}
		if s := m.Consumer.Stats("compute"); got != want || s.Outcomes[stats.Outcome5xx] != 0 || s.HedgesWon != 1 {
			t.Errorf("status %d: attempts ended as %v, want %v; requests as %v, %d hedges won", status, got, want, s.Outcomes, s.HedgesWon)
		}
	}
}

// endpointOutcomes returns how attempts have ended at all endpoints.
func endpointOutcomes(m *proxytest.Mesh) (sum [stats.AttemptOutcomes]uint64) {
	r := m.Consumer.Report().Services[0]
	for i := range r.Endpoints {
		for o, n := range r.Endpoints[i].Stats.Outcomes {
			sum[o] += n
		}
	}
	return sum
}
