package exchange_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// TestRateLimits: three loops share one limit. Five requests pass at once, then ten a
// second.
func TestRateLimits(t *testing.T) {
	const limit = "rate_limit: {rate: 10, burst: 5}"
	for _, c := range []struct {
		name string
		o    proxytest.MeshOptions
	}{
		{"of the service", proxytest.MeshOptions{Service: limit}},
		{"of the service, direct", proxytest.MeshOptions{Service: limit, OneHop: true}},
		{"of the application behind the link", proxytest.MeshOptions{Provider: limit, Service: "retry: {on: []}"}},
		{"of the listener", proxytest.MeshOptions{Listener: limit}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Apps = 1
			m := proxytest.NewMesh(t, c.o)
			calls := m.Burst(8, 10)
			m.Finish(calls...)
			if n := proxytest.CountCodes(calls); n[""] != 5 || n["rate-limited"] != 3 {
				t.Errorf("of 8 at once: %v, want 5 served and 3 rate-limited", n)
			}
			for _, k := range calls {
				if k.Code != "" && k.Status != 429 {
					t.Errorf("status %d %s", k.Status, k.Code)
				}
			}
			m.W.Run(350 * time.Millisecond)
			calls = m.Burst(8, 10)
			m.Finish(calls...)
			if n := proxytest.CountCodes(calls); n[""] != 3 {
				t.Errorf("a third of a second later: %v, want 3 served", n)
			}
			m.Settled()
		})
	}
}

// TestBreaker: the breaker opens after consecutive failures, admits one probe when it is
// half-open, and closes after the probe has succeeded.
func TestBreaker(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 1, Service: "retry: {on: []}, breaker: {consecutive: 3, open: 2s}"},
		func(t *testing.T, m *proxytest.Mesh) {
			one := func(status int, code string) {
				t.Helper()
				c := m.Complete(m.Post(10))
				if c.Status != status || c.Code != code {
					t.Fatalf("status %d %s, want %d %s", c.Status, c.Code, status, code)
				}
			}
			m.Apps[0].Status = 500
			for range 3 {
				one(500, "")
			}
			served := m.Apps[0].Served
			one(503, "breaker-open")
			if m.Apps[0].Served != served || m.Consumer.BreakerState("compute") != stats.BreakerOpen {
				t.Error("a request passed the open breaker")
			}
			m.W.Run(2 * time.Second)
			one(500, "") // the probe
			one(503, "breaker-open")
			m.W.Run(2 * time.Second)
			m.Apps[0].Status = 200
			m.Apps[0].Delay = func() time.Duration { return 20 * time.Millisecond }
			calls := m.Burst(4, 10)
			m.Finish(calls...)
			if n := proxytest.CountCodes(calls); n[""] != 1 || n["breaker-open"] != 3 {
				t.Errorf("half-open: %v, want one probe of 4", n)
			}
			one(200, "")
			if m.Consumer.BreakerState("compute") != stats.BreakerClosed {
				t.Error("the breaker did not close")
			}
			m.Settled()
		})
}

// TestBreakerProbeCancelled: a probe that its client cancels is followed by another.
func TestBreakerProbeCancelled(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "timeout: 1s, breaker: {consecutive: 1, open: 2s}"})
	m.Apps[0].FrozenUntil = m.W.Now() + 3*time.Second
	first := m.Complete(m.Post(10))
	if first.Code != "deadline" || m.Consumer.BreakerState("compute") != stats.BreakerOpen {
		t.Fatalf("status %d %s", first.Status, first.Code)
	}
	m.W.Run(2 * time.Second)
	m.Apps[0].FrozenUntil = m.W.Now() + time.Second
	cl := m.Do(m.Post(10))
	m.W.Run(100 * time.Millisecond)
	cl.Leave()
	m.W.Run(time.Second)
	after := m.Complete(m.Post(10))
	m.OK(after)
	m.Settled()
}
