package exchange_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb/outlier"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestLostConnection: when a connection with many requests is lost, all idempotent ones are
// retried elsewhere with the default policy, although the bucket has tokens for a few only.
// Without reset in retry.on, or if they are not idempotent, all fail.
func TestLostConnection(t *testing.T) {
	for service, want := range map[string]int{"idempotent: true": 0, "": 40, "idempotent: true, retry: {on: [connect]}": 40} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 2, Service: service})
		executed := m.Apps.CountExecutions()
		m.Apps.Slow(100 * time.Millisecond)
		calls := m.Burst(80, 10)
		m.W.Run(50 * time.Millisecond)
		m.W.Faults.ResetAll(m.Consumer.Host, m.Nodes[1].Host)
		m.Finish(calls...)
		s := m.Consumer.Stats("compute")
		if n := proxytest.CountCodes(calls); n["upstream-reset"] != want || n[""] != 80-want {
			t.Errorf("%q: responses %v, want %d of upstream-reset; %d retries, %d over budget", service, n, want, s.Retries, s.RetriesOverBudget)
		}
		if want == 0 && (s.RetriesPaid != 40 || s.RetriesAhead != 30) {
			t.Errorf("%d paid retries, %d of them in advance, want 40 and 30", s.RetriesPaid, s.RetriesAhead)
		}
		if want > 0 {
			m.CheckExecutedOnce(executed, calls...)
		}
		m.Settled()
	}
}

// TestRetryCascade: of a request that is itself a retry or hedge no paid retry is made, but free
// ones are.
func TestRetryCascade(t *testing.T) {
	policies := map[string]string{"reset": "idempotent: true", "5xx": "idempotent: true, retry: {on: [5xx]}", "refused": "", "connect": ""}
	for why, service := range policies {
		for attempt, retried := range map[string]uint64{"0": 1, "1": 0, "7": 0} {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Service: service, OneHop: why != "refused", Provider: "rate_limit: {rate: 1, burst: 1}"})
			a := m.Apps[0]
			m.Consumer.Update("compute", m.Endpoint(0))
			m.W.Run(time.Millisecond)
			switch why {
			case "reset":
				a.ResetAll = true
			case "5xx":
				a.Status = 503
			case "refused":
				m.WarmUp(1)
			case "connect":
				a.Stop()
				retried = 1
			}
			before := *m.Consumer.Stats("compute")
			c := m.Complete(m.Post(10, "x-remora-attempt: "+attempt))
			s := m.Consumer.Stats("compute")
			retries, kept := s.Retries-before.Retries, s.RetriesCascade-before.RetriesCascade
			if why == "connect" && retries == 0 || why != "connect" && retries != retried || kept != 1-retried {
				t.Errorf("%s, attempt %s: %d retries, %d not made as a cascade; %s", why, attempt, retries, kept, c.Code)
			}
			m.Settled()
		}
	}
}

// TestRetriesOfTwoHops: the retry of the consumer's sidecar is not retried by the provider's.
func TestRetriesOfTwoHops(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 2, Service: "idempotent: true", Provider: "idempotent: true"})
	executed := m.Apps.CountExecutions()
	for _, a := range m.Apps {
		a.ResetAll = true
	}
	c := m.Complete(m.Post(10))
	if n := executed[c.Nonce]; n != 3 || c.Code != "upstream-reset" {
		t.Errorf("%d executions, %s; want 2 at the first provider and 1 at the second", n, c.Code)
	}
	m.Settled()
}

// TestFlakyEndpoint: one of three applications answers every fifth request at once with 503. That
// is more than the budget of 5% covers if each gets a third of the requests. It gets so
// many less that all errors are retried. A higher success_rate ejects it.
func TestFlakyEndpoint(t *testing.T) {
	testFlakyEndpoint(t, "", false)
	testFlakyEndpoint(t, "outlier: {success_rate: 0.9}", true)
}

func testFlakyEndpoint(t *testing.T, settings string, ejected bool) {
	service := proxytest.Fields("idempotent: true, retry: {on: [5xx]}", settings)
	proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 3, Service: service}, func(t *testing.T, m *proxytest.Mesh) {
		m.Apps.SetLognormalDelays(1)
		flaky, rnd, fails := m.Apps[0], rand.New(rand.NewPCG(1, 3)), false
		slow := flaky.Delay
		flaky.Delay = func() time.Duration {
			if fails = rnd.IntN(5) == 0; fails {
				return 0
			}
			return slow()
		}
		flaky.OnServed = func() {
			if flaky.Status = 200; fails {
				flaky.Status, fails = 503, false
			}
		}
		calls := m.SendAtRate(7, 1000, 10*time.Second)
		m.FinishAfter(10*time.Second, calls)
		bad := 0
		for _, c := range calls {
			if c.Status != 200 {
				bad++
			}
		}
		s := m.Consumer.Stats("compute")
		if bad > 0 || s.Retries == 0 || (s.Ejections[outlier.BySuccessRate] > 0) != ejected {
			t.Errorf("%s: %d of %d failed, %d retries, %d over budget, ejections %v", service, bad, len(calls), s.Retries, s.RetriesOverBudget, s.Ejections)
		}
	})
}
