package exchange_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestLostConnection: when a connection with many requests is lost, all idempotent ones are
// retried elsewhere with the default policy, although the bucket has tokens for a few only.
// Without reset in retry.on, or if they are not idempotent, all fail.
func TestLostConnection(t *testing.T) {
	for service, want := range map[string]int{"idempotent: true": 0, "": 40, "idempotent: true, retry: {on: [connect]}": 40} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 2, Service: service})
		executed := m.CountExecutions()
		for _, a := range m.Apps {
			a.Delay = func() time.Duration { return 100 * time.Millisecond }
		}
		calls := m.Burst(80, 10)
		m.W.Run(50 * time.Millisecond)
		m.W.ResetAll(m.Consumer.Host, m.Nodes[1].Host)
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
