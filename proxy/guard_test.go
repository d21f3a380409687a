package proxy_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy"
)

// codes counts the answers by x-remora-error; "" is the application's.
func codes(calls []*call) map[string]int {
	n := map[string]int{}
	for _, c := range calls {
		n[c.code]++
	}
	return n
}

// Three loops share one limit: five requests pass at once, then ten a second.
func TestRateLimits(t *testing.T) {
	const limit = "rate_limit: {rate: 10, burst: 5}"
	for _, c := range []struct {
		name string
		o    meshOptions
	}{
		{"of the service", meshOptions{service: ", " + limit}},
		{"of the service, direct", meshOptions{service: ", " + limit, direct: true}},
		{"of the application behind the link", meshOptions{provider: ", " + limit, service: ", retry: {on: []}"}},
		{"of the listener", meshOptions{listener: ", " + limit}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.apps = 1
			m := newMesh(t, c.o)
			calls := m.burst(8, 10)
			m.finish(calls...)
			if n := codes(calls); n[""] != 5 || n["rate-limited"] != 3 {
				t.Errorf("of 8 at once: %v, want 5 answered and 3 rate-limited", n)
			}
			for _, k := range calls {
				if k.code != "" && k.status != 429 {
					t.Errorf("status %d %s", k.status, k.code)
				}
			}
			m.w.Run(350 * time.Millisecond)
			calls = m.burst(8, 10)
			m.finish(calls...)
			if n := codes(calls); n[""] != 3 {
				t.Errorf("a third of a second later: %v, want 3 answered", n)
			}
			m.settled()
		})
	}
}

// breaker is the state as the node's first loop sees it.
func (n *node) breaker(service string) (state proxy.BreakerState) {
	n.loop.Do(func() {
		for _, s := range n.proc.Workers()[0].Report().Services {
			if s.Name == service {
				state = s.Breaker
			}
		}
	})
	return state
}

func TestBreaker(t *testing.T) {
	eachTopology(t, meshOptions{apps: 1, service: ", retry: {on: []}, breaker: {consecutive: 3, open: 2s}"},
		func(t *testing.T, m *mesh) {
			one := func(status int, code string) {
				t.Helper()
				c := m.post(10)
				m.do(c)
				m.finish(c)
				if c.status != status || c.code != code {
					t.Fatalf("status %d %s, want %d %s", c.status, c.code, status, code)
				}
			}
			m.apps[0].status = 500
			for range 3 {
				one(500, "")
			}
			served := m.apps[0].served
			one(503, "breaker-open")
			if m.apps[0].served != served || m.consumer.breaker("compute") != proxy.BreakerOpen {
				t.Error("a request passed the open breaker")
			}
			m.w.Run(2 * time.Second)
			one(500, "") // the probe
			one(503, "breaker-open")
			m.w.Run(2 * time.Second)
			m.apps[0].status = 200
			m.apps[0].delay = func() time.Duration { return 20 * time.Millisecond }
			calls := m.burst(4, 10)
			m.finish(calls...)
			if n := codes(calls); n[""] != 1 || n["breaker-open"] != 3 {
				t.Errorf("half-open: %v, want one probe of 4", n)
			}
			one(200, "")
			if m.consumer.breaker("compute") != proxy.BreakerClosed {
				t.Error("the breaker did not close")
			}
			m.settled()
		})
}

// A probe that its caller withdraws makes room for the next.
func TestBreakerProbeWithdrawn(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, direct: true, service: ", timeout: 1s, breaker: {consecutive: 1, open: 2s}"})
	m.apps[0].frozen = m.w.Now() + 3*time.Second
	first := m.post(10)
	m.do(first)
	m.finish(first)
	if first.code != "deadline" || m.consumer.breaker("compute") != proxy.BreakerOpen {
		t.Fatalf("status %d %s", first.status, first.code)
	}
	m.w.Run(2 * time.Second)
	m.apps[0].frozen = m.w.Now() + time.Second
	cl := m.do(m.post(10))
	m.w.Run(100 * time.Millisecond)
	m.clients.Do(func() { cl.conn.Close() })
	m.w.Run(time.Second)
	after := m.post(10)
	m.do(after)
	m.finish(after)
	m.ok(after)
	m.settled()
}
