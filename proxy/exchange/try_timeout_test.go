package exchange_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb/outlier"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// tries returns a service with a timeout of 100 ms for each attempt.
func tries(more ...string) string {
	return proxytest.Fields(append(more, "timeout: 5s, connect_timeout: 15s, lb: {policy: weighted_round_robin, slow_start: 0s}")...)
}

// TestTryTimeout: an attempt without a response in time has failed. It counts as pending until
// the application has responded, and its late response is dropped.
func TestTryTimeout(t *testing.T) {
	for _, c := range []struct {
		service string
		frozen  int // of the executions, the first ones
		code    string
		took    time.Duration // at least
		tried   int           // executions
	}{
		{"idempotent: true, retry: {per_try_timeout: 100ms}", 1, "", 100 * time.Millisecond, 2},
		{"idempotent: true, retry: {per_try_timeout: 100ms}", 2, "upstream-timeout", 200 * time.Millisecond, 2},
		{"retry: {per_try_timeout: 100ms}", 1, "upstream-timeout", 100 * time.Millisecond, 1},
		{"idempotent: true, retry: {on: [connect], per_try_timeout: 100ms}", 1, "upstream-timeout", 100 * time.Millisecond, 1},
		{"idempotent: true, retry: {attempts: 3, per_try_timeout: 100ms}, hedge: {budget: 1}", 2, "", 200 * time.Millisecond, 3},
		{"idempotent: true, retry: {per_try_timeout: 100ms}, hedge: {mode: on, delay: 40ms, budget: 1}", 2, "", 140 * time.Millisecond, 3},
	} {
		proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 3, Service: tries(c.service)}, func(t *testing.T, m *proxytest.Mesh) {
			executed := m.Apps.CountExecutions()
			arrived := 0
			for _, a := range m.Apps {
				a.Delay = func() time.Duration {
					if arrived++; arrived <= c.frozen {
						return time.Second
					}
					return time.Millisecond
				}
			}
			call := m.Complete(m.Post(10))
			if call.Code != c.code || call.Took < c.took || call.Took > c.took+50*time.Millisecond {
				t.Errorf("%s, %d frozen: %d %q after %v, want %q after %v", c.service, c.frozen, call.Status, call.Code, call.Took, c.code, c.took)
			}
			if n := executed[call.Nonce]; n != c.tried {
				t.Errorf("%s, %d frozen: %d executions, want %d", c.service, c.frozen, n, c.tried)
			}
			m.Settled()
		})
	}
}

// TestTryTimeoutOfRetry: a retry has the whole time of an attempt, also if the attempt before it has failed sooner.
func TestTryTimeoutOfRetry(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{
		OneHop: true, Apps: 3, Service: tries("idempotent: true, retry: {attempts: 3, on: [5xx, reset], per_try_timeout: 100ms}, hedge: {budget: 1}"),
	})
	tried := 0
	for _, a := range m.Apps {
		a.Delay = func() time.Duration {
			a.Status = 200
			switch tried++; tried {
			case 1:
				a.Status = 503
				return 60 * time.Millisecond
			case 2:
				return time.Second
			}
			return time.Millisecond
		}
	}
	call := m.Complete(m.Post(10))
	if m.OK(call); tried != 3 || call.Took < 160*time.Millisecond || call.Took > 200*time.Millisecond {
		t.Errorf("%d attempts, the response after %v", tried, call.Took)
	}
	m.Settled()
}

// TestTryTimeoutPending: an endpoint that is frozen does not look idle after its attempts have
// timed out, and is ejected when it has been silent for long.
func TestTryTimeoutPending(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 2, Service: "idempotent: true, timeout: 2s, retry: {per_try_timeout: 100ms}, hedge: {budget: 1}, outlier: {base: 300ms}"},
		func(t *testing.T, m *proxytest.Mesh) {
			m.WarmUp(20)
			m.Apps[0].FrozenUntil = m.W.Now() + 10*time.Second
			var calls []*proxytest.Call
			for range 100 {
				c := m.Post(10)
				m.Do(c)
				calls = append(calls, c)
				m.W.Run(10 * time.Millisecond)
			}
			m.OK(calls...)
			s := m.Consumer.Stats("compute")
			if s.RetriesPaid == 0 || s.RetriesPaid > 2 {
				t.Errorf("%d of 100 requests were retried, want few: the frozen endpoint has requests pending", s.RetriesPaid)
			}
			m.Settled()
		})
}

// TestTryTimeoutJudgedOnce: an attempt that has timed out, and whose deadline passes too, is one
// failure of its endpoint.
func TestTryTimeoutJudgedOnce(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 2, Service: tries("idempotent: true, retry: {per_try_timeout: 400ms}, hedge: {budget: 1}, outlier: {consecutive: 2, base: 300ms}")},
		func(t *testing.T, m *proxytest.Mesh) {
			m.WarmUp(20)
			m.Apps[0].FrozenUntil = m.W.Now() + 10*time.Second
			for took := time.Duration(0); took < 400*time.Millisecond; { // until one goes to the frozen endpoint
				call := m.Complete(m.Post(10))
				m.OK(call)
				took = call.Took
			}
			m.W.Run(6 * time.Second)
			if n := m.Consumer.Stats("compute").Ejections; n != [outlier.Reasons]uint64{} {
				t.Errorf("ejections %v", n)
			}
			m.Settled()
		})
}

// TestTryTimeoutBudget: attempts that time out do not owe tokens, or all would be repeated when
// all endpoints are slow.
func TestTryTimeoutBudget(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 3, Service: tries("idempotent: true, retry: {attempts: 3, per_try_timeout: 100ms}")},
		func(t *testing.T, m *proxytest.Mesh) {
			for _, a := range m.Apps {
				a.FrozenUntil = m.W.Now() + time.Second
			}
			calls := m.Burst(100, 10)
			m.Finish(calls...)
			if n := proxytest.CountCodes(calls); n["upstream-timeout"] != len(calls) {
				t.Errorf("responses %v", n)
			}
			if s := m.Consumer.Stats("compute"); s.RetriesPaid > 15 || s.RetriesAhead > 0 || s.RetriesOverBudget == 0 {
				t.Errorf("%d paid retries, %d in advance, %d over budget", s.RetriesPaid, s.RetriesAhead, s.RetriesOverBudget)
			}
			m.Settled()
		})
}

// TestTryTimeoutLateLoop: a loop that had no CPU takes the responses that came meanwhile.
func TestTryTimeoutLateLoop(t *testing.T) {
	for seed := range uint64(10) {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Seed: seed, Service: tries("idempotent: true, retry: {per_try_timeout: 10ms}")})
		m.WarmUp(10)
		m.BurstWhilePaused(30, 20*time.Millisecond)
		if s := m.Consumer.Stats("compute"); s.Retries > 0 {
			t.Errorf("seed %d: %d retries", seed, s.Retries)
		}
		m.Settled()
	}
}

// TestTryTimeoutUnsent: a request that waits for a connection has reached no application.
func TestTryTimeoutUnsent(t *testing.T) {
	for _, direct := range []bool{true, false} {
		t.Run(fmt.Sprint("direct ", direct), func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 2, OneHop: direct, Service: tries("idempotent: true, retry: {per_try_timeout: 100ms}, hedge: {budget: 1}")})
			m.W.Faults.Pause(m.Apps[0].Loop, time.Second)
			if !direct {
				m.W.Faults.Pause(m.Nodes[1].Loop, time.Second)
			}
			calls := m.Burst(10, 10)
			m.OK(calls...)
			for _, c := range calls {
				if c.Took > 200*time.Millisecond {
					t.Errorf("response after %v", c.Took)
				}
			}
			m.Settled()
		})
	}
}
