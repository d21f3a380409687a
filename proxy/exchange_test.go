package proxy_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/registry"
)

// eachTopology runs a test with the applications called straight over HTTP, and
// with a sidecar beside each.
func eachTopology(t *testing.T, o meshOptions, f func(t *testing.T, m *mesh)) {
	t.Run("one hop", func(t *testing.T) {
		o.direct = true
		f(t, newMesh(t, o))
	})
	t.Run("two hops", func(t *testing.T) {
		o.direct = false
		f(t, newMesh(t, o))
	})
}

func TestAnswersReachTheirCallers(t *testing.T) {
	eachTopology(t, meshOptions{}, func(t *testing.T, m *mesh) {
		calls := []*call{m.post(300), m.get("/x?y=1"), m.post(0), m.post(100_000)}
		m.do(calls...)
		m.finish(calls...)
		m.ok(calls...)
		for i, want := range []string{
			"nonce=n1 path=/compute body=300", "nonce=n2 path=/x?y=1 body=0",
			"nonce=n3 path=/compute body=0", "nonce=n4 path=/compute body=100000",
		} {
			if got := string(calls[i].body); got != want {
				t.Errorf("body %q, want %q", got, want)
			}
		}
		m.settled()
	})
}

func TestManyClientsAtOnce(t *testing.T) {
	for seed := range uint64(10) {
		eachTopology(t, meshOptions{seed: seed}, func(t *testing.T, m *mesh) {
			var all []*call
			for range 50 {
				calls := []*call{m.post(300), m.post(20_000), m.get("/"), m.post(1)}
				m.do(calls...)
				all = append(all, calls...)
			}
			m.finish(all...)
			m.ok(all...)
			m.settled()
		})
	}
}

func TestRefusedDialGoesElsewhere(t *testing.T) {
	m := newMesh(t, meshOptions{direct: true})
	// Two of three endpoints refuse connections: each request finds the third,
	// whatever its method, at no cost.
	m.consumer.update("compute",
		registry.Endpoint{Addr: m.apps[0].addr, Weight: 1},
		registry.Endpoint{Addr: "10.0.1.1:9", Weight: 1},
		registry.Endpoint{Addr: "10.0.1.2:9", Weight: 1})
	m.w.Run(time.Millisecond)
	calls := m.burst(20, 10)
	m.finish(calls...)
	m.ok(calls...)
	m.settled()
}

// Requests that a client has pipelined are processed one after another, so they
// never count as more than one of max_pending.
func TestPipelinedRequestsPendOneByOne(t *testing.T) {
	eachTopology(t, meshOptions{apps: 1, service: ", max_pending: 1"}, func(t *testing.T, m *mesh) {
		for _, want := range []int{200, 503} { // answered and failed
			const n = 3
			p := m.speak(egress, strings.Repeat(getStream, n))
			m.until("answers", func() bool { return bytes.Count(p.heard, []byte("HTTP/1.1 ")) == n })
			if bytes.Count(p.heard, fmt.Appendf(nil, "HTTP/1.1 %d", want)) != n || bytes.Contains(p.heard, []byte("overloaded")) {
				t.Errorf("heard %q, want %d times %d", p.heard, n, want)
			}
			m.consumer.update("compute")
			m.settled()
		}
	})
}

func TestNoEndpoint(t *testing.T) {
	m := newMesh(t, meshOptions{direct: true})
	m.consumer.update("compute")
	m.w.Run(time.Millisecond)
	c := m.post(10)
	m.do(c)
	m.finish(c)
	if c.status != 503 || c.code != "no-endpoint" {
		t.Errorf("status %d %s, want 503 no-endpoint", c.status, c.code)
	}
	m.settled()
}

func TestAllDialsRefused(t *testing.T) {
	m := newMesh(t, meshOptions{direct: true})
	m.consumer.update("compute", registry.Endpoint{Addr: "10.0.1.1:9", Weight: 1})
	m.w.Run(time.Millisecond)
	c := m.post(10)
	m.do(c)
	m.finish(c)
	if c.status != 502 || c.code != "upstream-connect" {
		t.Errorf("status %d %s, want 502 upstream-connect", c.status, c.code)
	}
	m.settled()
}

func TestDeadline(t *testing.T) {
	eachTopology(t, meshOptions{service: ", timeout: 100ms", apps: 1}, func(t *testing.T, m *mesh) {
		m.apps[0].delay = func() time.Duration { return time.Second }
		late, next := m.post(10), m.post(10)
		m.do(late, next)
		m.finish(late)
		if late.status != 504 || late.code != "deadline" {
			t.Errorf("status %d %s, want 504 deadline", late.status, late.code)
		}
		if late.took < 100*time.Millisecond || late.took > 110*time.Millisecond {
			t.Errorf("answered after %v, want 100 ms", late.took)
		}
		m.apps[0].delay = func() time.Duration { return time.Millisecond }
		m.finish(next)
		m.ok(next)
		m.settled()
	})
}

// A pooled connection that the application's server closed just as a request
// was put on it: sent again if that is safe.
func TestStalePooledConnection(t *testing.T) {
	for _, idempotent := range []bool{true, false} {
		t.Run(fmt.Sprintf("idempotent %v", idempotent), func(t *testing.T) {
			m := newMesh(t, meshOptions{direct: true, apps: 1,
				service: fmt.Sprintf(", idempotent: %v", idempotent)})
			first := m.post(10)
			c := m.do(first)
			m.finish(first)
			m.ok(first)
			m.apps[0].dropNext = true
			second := m.post(10)
			m.clients.Do(func() { c.calls = append(c.calls, second); c.send() })
			m.finish(second)
			if idempotent {
				m.ok(second)
			} else if second.status != 502 || second.code != "upstream-reset" {
				t.Errorf("status %d %s, want 502 upstream-reset", second.status, second.code)
			}
			m.settled()
		})
	}
}

// One that was dialled for a request whose caller went away has been idle as well.
func TestStaleConnectionThatNeverAnswered(t *testing.T) {
	m, d := diallingMesh(t, 0, meshOptions{direct: true, apps: 1})
	gone := m.do(m.get("/"))
	m.until("a dial", func() bool { return d.all == 1 })
	m.clients.Do(func() { gone.conn.Close() })
	m.until("a connection", func() bool { return d.now == 0 })
	m.settled()
	m.apps[0].dropNext = true
	c := m.get("/")
	m.do(c)
	m.finish(c)
	m.ok(c)
	if m.apps[0].served != 1 || d.all != 2 {
		t.Errorf("%d requests served, over %d connections", m.apps[0].served, d.all)
	}
	m.settled()
}

func TestResetIsRetriedIfIdempotentAndPaid(t *testing.T) {
	eachTopology(t, meshOptions{service: ", idempotent: true, retry: {attempts: 2, on: [connect, refused, reset]}"},
		func(t *testing.T, m *mesh) {
			for _, a := range m.apps[:2] {
				a.resetAll = true
			}
			var calls []*call
			for range 6 {
				calls = append(calls, m.post(10))
			}
			m.do(calls...)
			m.finish(calls...)
			m.ok(calls...)
			m.settled()
		})
}

func TestBadAnswersAreNotRetriedUnlessAsked(t *testing.T) {
	for _, on := range []string{"connect", `5xx`, `"503"`, `"500"`} {
		t.Run(on, func(t *testing.T) {
			m := newMesh(t, meshOptions{direct: true,
				service: ", idempotent: true, retry: {attempts: 2, on: [" + on + "]}"})
			m.apps[0].status, m.apps[1].status = 503, 503
			retried := on == "5xx" || on == `"503"`
			bad := 0
			for range 4 {
				c := m.post(10)
				m.do(c)
				m.finish(c)
				if c.status == 503 {
					bad++
				}
			}
			if retried != (bad == 0) {
				t.Errorf("%d of 4 calls ended with 503", bad)
			}
			m.settled()
		})
	}
}

func TestClientThatLeavesIsForgotten(t *testing.T) {
	eachTopology(t, meshOptions{apps: 1}, func(t *testing.T, m *mesh) {
		m.apps[0].delay = func() time.Duration { return 50 * time.Millisecond }
		c := m.post(10)
		cl := m.do(c)
		m.w.Run(20 * time.Millisecond)
		m.clients.Do(func() { cl.conn.Close() })
		m.w.Run(5 * time.Millisecond)
		if n := m.consumer.proc.Pending(); n == 0 {
			t.Error("the withdrawn request is not counted while the application works on it")
		}
		m.settled()
		if m.apps[0].served != 1 {
			t.Errorf("the application served %d", m.apps[0].served)
		}
	})
}

func TestHeadAndBodylessAnswers(t *testing.T) {
	eachTopology(t, meshOptions{}, func(t *testing.T, m *mesh) {
		head := m.get("/h")
		head.raw = []byte(strings.Replace(string(head.raw), "GET", "HEAD", 1))
		head.toHead = true
		after := m.get("/")
		m.do(head, after)
		m.finish(head, after)
		m.ok(head, after)
		m.settled()
	})
}

func TestHopByHopHeadersStay(t *testing.T) {
	eachTopology(t, meshOptions{}, func(t *testing.T, m *mesh) {
		var seen []string
		for _, a := range m.apps {
			a.seen = func(req *protocol.Request) {
				for _, h := range req.Headers {
					seen = append(seen, strings.ToLower(string(h.Name)))
				}
			}
		}
		c := m.get("/", "Connection: keep-alive, x-private", "x-private: 1", "X-Remora-Idempotent: 1",
			"Keep-Alive: timeout=5", "x-public: 2")
		m.do(c)
		m.finish(c)
		m.ok(c)
		if got := strings.Join(seen, " "); got != "x-nonce x-public via x-forwarded-for x-forwarded-proto x-request-id" {
			t.Errorf("the application saw headers %q", got)
		}
	})
}
