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

func TestAnswersReachTheirCallers(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{}, func(t *testing.T, m *proxytest.Mesh) {
		calls := []*proxytest.Call{m.Post(300), m.Get("/x?y=1"), m.Post(0), m.Post(100_000)}
		m.Do(calls...)
		m.Finish(calls...)
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

func TestManyClientsAtOnce(t *testing.T) {
	for seed := range uint64(10) {
		proxytest.EachTopology(t, proxytest.MeshOptions{Seed: seed}, func(t *testing.T, m *proxytest.Mesh) {
			var all []*proxytest.Call
			for range 50 {
				calls := []*proxytest.Call{m.Post(300), m.Post(20_000), m.Get("/"), m.Post(1)}
				m.Do(calls...)
				all = append(all, calls...)
			}
			m.Finish(all...)
			m.OK(all...)
			m.Settled()
		})
	}
}

func TestRefusedDialGoesElsewhere(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Direct: true})
	// Two of three endpoints refuse connections: each request finds the third,
	// whatever its method, at no cost.
	m.Consumer.Update("compute",
		registry.Endpoint{Addr: m.Apps[0].Addr, Weight: 1},
		registry.Endpoint{Addr: "10.0.1.1:9", Weight: 1},
		registry.Endpoint{Addr: "10.0.1.2:9", Weight: 1})
	m.W.Run(time.Millisecond)
	calls := m.Burst(20, 10)
	m.Finish(calls...)
	m.OK(calls...)
	m.Settled()
}

// Requests that a client has pipelined are processed one after another, so they
// never count as more than one of max_pending.
func TestPipelinedRequestsPendOneByOne(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 1, Service: ", max_pending: 1"}, func(t *testing.T, m *proxytest.Mesh) {
		for _, want := range []int{200, 503} { // answered and failed
			const n = 3
			p := m.DialAndSend(proxytest.Egress, strings.Repeat(proxytest.StreamRequest, n))
			m.RunUntil("answers", func() bool { return bytes.Count(p.Heard, []byte("HTTP/1.1 ")) == n })
			if bytes.Count(p.Heard, fmt.Appendf(nil, "HTTP/1.1 %d", want)) != n || bytes.Contains(p.Heard, []byte("overloaded")) {
				t.Errorf("heard %q, want %d times %d", p.Heard, n, want)
			}
			m.Consumer.Update("compute")
			m.Settled()
		}
	})
}

func TestNoEndpoint(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Direct: true})
	m.Consumer.Update("compute")
	m.W.Run(time.Millisecond)
	c := m.Post(10)
	m.Do(c)
	m.Finish(c)
	if c.Status != 503 || c.Code != "no-endpoint" {
		t.Errorf("status %d %s, want 503 no-endpoint", c.Status, c.Code)
	}
	m.Settled()
}

func TestAllDialsRefused(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Direct: true})
	m.Consumer.Update("compute", registry.Endpoint{Addr: "10.0.1.1:9", Weight: 1})
	m.W.Run(time.Millisecond)
	c := m.Post(10)
	m.Do(c)
	m.Finish(c)
	if c.Status != 502 || c.Code != "upstream-connect" {
		t.Errorf("status %d %s, want 502 upstream-connect", c.Status, c.Code)
	}
	m.Settled()
}

func TestDeadline(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{Service: ", timeout: 100ms", Apps: 1}, func(t *testing.T, m *proxytest.Mesh) {
		m.Apps[0].Delay = func() time.Duration { return time.Second }
		late, next := m.Post(10), m.Post(10)
		m.Do(late, next)
		m.Finish(late)
		if late.Status != 504 || late.Code != "deadline" {
			t.Errorf("status %d %s, want 504 deadline", late.Status, late.Code)
		}
		if late.Took < 100*time.Millisecond || late.Took > 110*time.Millisecond {
			t.Errorf("answered after %v, want 100 ms", late.Took)
		}
		m.Apps[0].Delay = func() time.Duration { return time.Millisecond }
		m.Finish(next)
		m.OK(next)
		m.Settled()
	})
}

// A pooled connection that the application's server closed just as a request
// was put on it: sent again if that is safe.
func TestStalePooledConnection(t *testing.T) {
	for _, idempotent := range []bool{true, false} {
		t.Run(fmt.Sprintf("idempotent %v", idempotent), func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Direct: true, Apps: 1,
				Service: fmt.Sprintf(", idempotent: %v", idempotent)})
			first := m.Post(10)
			c := m.Do(first)
			m.Finish(first)
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

// One that was dialled for a request whose caller went away has been idle as well.
func TestStaleConnectionThatNeverAnswered(t *testing.T) {
	m, d := proxytest.DiallingMesh(t, 0, proxytest.MeshOptions{Direct: true, Apps: 1})
	gone := m.Do(m.Get("/"))
	m.RunUntil("a dial", func() bool { return d.Dials == 1 })
	m.Clients.Do(func() { gone.Conn.Close() })
	m.RunUntil("a connection", func() bool { return d.Dialling == 0 })
	m.Settled()
	m.Apps[0].DropNext = true
	c := m.Get("/")
	m.Do(c)
	m.Finish(c)
	m.OK(c)
	if m.Apps[0].Served != 1 || d.Dials != 2 {
		t.Errorf("%d requests served, over %d connections", m.Apps[0].Served, d.Dials)
	}
	m.Settled()
}

func TestResetIsRetriedIfIdempotentAndPaid(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{Service: ", idempotent: true, retry: {attempts: 2, on: [connect, refused, reset]}"},
		func(t *testing.T, m *proxytest.Mesh) {
			for _, a := range m.Apps[:2] {
				a.ResetAll = true
			}
			var calls []*proxytest.Call
			for range 6 {
				calls = append(calls, m.Post(10))
			}
			m.Do(calls...)
			m.Finish(calls...)
			m.OK(calls...)
			m.Settled()
		})
}

func TestBadAnswersAreNotRetriedUnlessAsked(t *testing.T) {
	for _, on := range []string{"connect", `5xx`, `"503"`, `"500"`} {
		t.Run(on, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Direct: true,
				Service: ", idempotent: true, retry: {attempts: 2, on: [" + on + "]}"})
			m.Apps[0].Status, m.Apps[1].Status = 503, 503
			retried := on == "5xx" || on == `"503"`
			bad := 0
			for range 4 {
				c := m.Post(10)
				m.Do(c)
				m.Finish(c)
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

func TestClientThatLeavesIsForgotten(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 1}, func(t *testing.T, m *proxytest.Mesh) {
		m.Apps[0].Delay = func() time.Duration { return 50 * time.Millisecond }
		c := m.Post(10)
		cl := m.Do(c)
		m.W.Run(20 * time.Millisecond)
		m.Clients.Do(func() { cl.Conn.Close() })
		m.W.Run(5 * time.Millisecond)
		if n := m.Consumer.Proc.Pending(); n == 0 {
			t.Error("the withdrawn request is not counted while the application works on it")
		}
		m.Settled()
		if m.Apps[0].Served != 1 {
			t.Errorf("the application served %d", m.Apps[0].Served)
		}
	})
}

func TestHeadAndBodylessAnswers(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{}, func(t *testing.T, m *proxytest.Mesh) {
		head := m.Get("/h")
		head.Raw = []byte(strings.Replace(string(head.Raw), "GET", "HEAD", 1))
		head.IsHead = true
		after := m.Get("/")
		m.Do(head, after)
		m.Finish(head, after)
		m.OK(head, after)
		m.Settled()
	})
}

func TestHopByHopHeadersStay(t *testing.T) {
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
		m.Do(c)
		m.Finish(c)
		m.OK(c)
		if got := strings.Join(seen, " "); got != "x-nonce x-public via x-forwarded-for x-forwarded-proto x-request-id" {
			t.Errorf("the application saw headers %q", got)
		}
	})
}
