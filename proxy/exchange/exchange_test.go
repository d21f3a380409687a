package exchange_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/registry"
)

// TestResponses: each request receives its own response.
func TestResponses(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{}, func(t *testing.T, m *proxytest.Mesh) {
		calls := []*proxytest.Call{m.Post(300), m.Get("/x?y=1"), m.Post(0), m.Post(100_000)}
		m.Do(calls...)
		m.OK(calls...)
		for i, want := range []string{
			"nonce=n1 path=/compute body=300", "nonce=n2 path=/x?y=1 body=0",
			"nonce=n3 path=/compute body=0", "nonce=n4 path=/compute body=100000",
		} {
			if got := string(calls[i].Body); got != want {
				t.Errorf("body %q, want %q", got, want)
			}
		}
		m.Settled()
	})
}

// TestManyClients: requests of many clients at once succeed, with every seed.
func TestManyClients(t *testing.T) {
	for seed := range uint64(10) {
		proxytest.EachTopology(t, proxytest.MeshOptions{Seed: seed}, func(t *testing.T, m *proxytest.Mesh) {
			var all []*proxytest.Call
			for range 50 {
				calls := []*proxytest.Call{m.Post(300), m.Post(20_000), m.Get("/"), m.Post(1)}
				m.Do(calls...)
				all = append(all, calls...)
			}
			m.OK(all...)
			m.Settled()
		})
	}
}

// TestDialRefusedRetry: with two of three endpoints that refuse connections each request
// reaches the third, with any method and without the retry budget.
func TestDialRefusedRetry(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{OneHop: true})
	m.Consumer.Update("compute",
		registry.Endpoint{Addr: m.Apps[0].Addr, Weight: 1},
		registry.Endpoint{Addr: "10.0.1.1:9", Weight: 1},
		registry.Endpoint{Addr: "10.0.1.2:9", Weight: 1})
	m.W.Run(time.Millisecond)
	calls := m.Burst(20, 10)
	m.OK(calls...)
	m.Settled()
}

// TestPipelinedPending: pipelined requests are processed one after another, so they count
// as one of max_pending.
func TestPipelinedPending(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 1, Service: "max_pending: 1"}, func(t *testing.T, m *proxytest.Mesh) {
		for _, want := range []int{200, 503} { // served and failed
			const n = 3
			p := m.DialAndSend(proxytest.Egress, strings.Repeat(proxytest.StreamRequest, n))
			m.RunUntil("responses", func() bool { return bytes.Count(p.Heard, []byte("HTTP/1.1 ")) == n })
			if bytes.Count(p.Heard, fmt.Appendf(nil, "HTTP/1.1 %d", want)) != n || bytes.Contains(p.Heard, []byte("overloaded")) {
				t.Errorf("received %q, want %d times %d", p.Heard, n, want)
			}
			m.Consumer.Update("compute")
			m.Settled()
		}
	})
}

// TestUnreachable: without endpoints, or if all refuse connections, a request fails with a code that says so. It is tried
// three times at most, however many endpoints there are.
func TestUnreachable(t *testing.T) {
	refusing := func(n int) (all []registry.Endpoint) {
		for i := range n {
			all = append(all, registry.Endpoint{Addr: fmt.Sprintf("10.0.1.%d:9", i+1), Weight: 1})
		}
		return all
	}
	for _, c := range []struct {
		endpoints []registry.Endpoint
		status    int
		code      string
		attempts  int
	}{
		{nil, 503, "no-endpoint", 1},
		{refusing(1), 502, "upstream-connect", 3},
		{refusing(8), 502, "upstream-connect", 3},
	} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{OneHop: true, Limits: proxytest.LogAll})
		m.Consumer.Update("compute", c.endpoints...)
		m.W.Run(time.Millisecond)
		k := m.Complete(m.Post(10))
		if k.Status != c.status || k.Code != c.code {
			t.Errorf("%d endpoints: status %d %s, want %d %s", len(c.endpoints), k.Status, k.Code, c.status, c.code)
		}
		m.Settled()
		if n := m.Consumer.OnlyAccessLine().Attempts; n != c.attempts {
			t.Errorf("%d endpoints: %d attempts, want %d", len(c.endpoints), n, c.attempts)
		}
	}
}

// TestDeadline: a request without a response fails at its timeout.
func TestDeadline(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{Service: "timeout: 100ms", Apps: 1}, func(t *testing.T, m *proxytest.Mesh) {
		m.Apps[0].Delay = func() time.Duration { return time.Second }
		late, next := m.Post(10), m.Post(10)
		m.Do(late, next)
		m.Finish(late)
		if late.Status != 504 || late.Code != "deadline" {
			t.Errorf("status %d %s, want 504 deadline", late.Status, late.Code)
		}
		if late.Took < 100*time.Millisecond || late.Took > 110*time.Millisecond {
			t.Errorf("response after %v, want 100 ms", late.Took)
		}
		m.Apps[0].Delay = func() time.Duration { return time.Millisecond }
		m.OK(next)
		m.Settled()
	})
}

// TestStalePooledConnection: a request on a pooled connection that the application has
// just closed is sent again if that is safe.
func TestStalePooledConnection(t *testing.T) {
	for _, idempotent := range []bool{true, false} {
		t.Run(fmt.Sprintf("idempotent %v", idempotent), func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{OneHop: true, Apps: 1,
				Service: fmt.Sprintf("idempotent: %v", idempotent)})
			first := m.Post(10)
			c := m.Do(first)
			m.OK(first)
			m.Apps[0].DropNext = true
			second := m.Post(10)
			m.Clients.Do(func() { c.Calls = append(c.Calls, second); c.Send() })
			m.Finish(second)
			if idempotent {
				m.OK(second)
			} else if second.Status != 502 || second.Code != "upstream-reset" {
				t.Errorf("status %d %s, want 502 upstream-reset", second.Status, second.Code)
			}
			m.Settled()
		})
	}
}

// TestStaleUnusedConnection: a connection that was dialled for a cancelled request counts
// as idle too, although it never carried a request.
func TestStaleUnusedConnection(t *testing.T) {
	m, d := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{OneHop: true, Apps: 1})
	gone := m.Do(m.Get("/"))
	m.RunUntil("a dial", func() bool { return d.Dials == 1 })
	gone.Leave()
	m.RunUntil("a connection", func() bool { return d.Dialling == 0 })
	m.Settled()
	m.Apps[0].DropNext = true
	c := m.Complete(m.Get("/"))
	m.OK(c)
	if m.Apps[0].Served != 1 || d.Dials != 2 {
		t.Errorf("%d requests served, over %d connections", m.Apps[0].Served, d.Dials)
	}
	m.Settled()
}

// TestResetRetry: a reset is retried if the request is idempotent, the budget allows it and
// retry.on has reset.
func TestResetRetry(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{Service: "idempotent: true, retry: {attempts: 2, on: [connect, refused, reset]}"},
		func(t *testing.T, m *proxytest.Mesh) {
			for _, a := range m.Apps[:2] {
				a.ResetAll = true
			}
			var calls []*proxytest.Call
			for range 6 {
				calls = append(calls, m.Post(10))
			}
			m.Do(calls...)
			m.OK(calls...)
			m.Settled()
		})
}

// TestBadResponseRetry: a status is retried only if retry.on has it.
func TestBadResponseRetry(t *testing.T) {
	for _, on := range []string{"connect", `5xx`, `"503"`, `"500"`} {
		t.Run(on, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{OneHop: true,
				Service: "idempotent: true, retry: {attempts: 2, on: [" + on + "]}"})
			m.Apps[0].Status, m.Apps[1].Status = 503, 503
			retried := on == "5xx" || on == `"503"`
			bad := 0
			for range 4 {
				c := m.Complete(m.Post(10))
				if c.Status == 503 {
					bad++
				}
			}
			if retried != (bad == 0) {
				t.Errorf("%d of 4 calls ended with 503", bad)
			}
			m.Settled()
		})
	}
}

// TestClientCloses: the request of a client that closed counts as pending while the
// application works on it, and then no longer.
func TestClientCloses(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 1}, func(t *testing.T, m *proxytest.Mesh) {
		m.Apps[0].Delay = func() time.Duration { return 50 * time.Millisecond }
		c := m.Post(10)
		cl := m.Do(c)
		m.W.Run(20 * time.Millisecond)
		cl.Leave()
		m.W.Run(5 * time.Millisecond)
		if n := m.Consumer.Proc.Pending(); n == 0 {
			t.Error("the cancelled request is not counted while the application works on it")
		}
		m.Settled()
		if m.Apps[0].Served != 1 {
			t.Errorf("the application served %d", m.Apps[0].Served)
		}
	})
}

// TestResponseToHead: a response to HEAD has no body, and the next response follows it.
func TestResponseToHead(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{}, func(t *testing.T, m *proxytest.Mesh) {
		head := m.Get("/h")
		head.Raw = []byte(strings.Replace(string(head.Raw), "GET", "HEAD", 1))
		head.IsHead = true
		after := m.Get("/")
		m.Do(head, after)
		m.OK(head, after)
		m.Settled()
	})
}

// TestHopByHopHeaders: hop-by-hop headers and headers of the sidecar are not passed on.
func TestHopByHopHeaders(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{}, func(t *testing.T, m *proxytest.Mesh) {
		var seen []string
		for _, a := range m.Apps {
			a.OnRequest = func(req *protocol.Request) {
				for _, h := range req.Headers {
					seen = append(seen, strings.ToLower(string(h.Name)))
				}
			}
		}
		c := m.Get("/", "Connection: keep-alive, x-private", "x-private: 1", "X-Remora-Idempotent: 1",
			"Keep-Alive: timeout=5", "x-public: 2")
		m.Complete(c)
		m.OK(c)
		if got := strings.Join(seen, " "); got != "x-nonce x-public cdn-loop x-forwarded-for x-forwarded-proto x-request-id" {
			t.Errorf("the application received headers %q", got)
		}
	})
}
