package proxy_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy"
)

// raw makes a call of literal bytes; the answer carries no nonce of its own.
func (m *mesh) raw(text string) *call {
	c := m.get("/")
	c.raw = []byte(strings.ReplaceAll(text, "NONCE", c.nonce))
	return c
}

// refused checks for an answer of the sidecar's own, after which the connection
// closes.
func (m *mesh) refused(c *call, cl *client, status int, code string) {
	m.t.Helper()
	if c.status != status || c.code != code {
		m.t.Errorf("status %d %s (%v), want %d %s", c.status, c.code, c.err, status, code)
	}
	if !m.w.RunUntil(func() bool { return cl.ended }, 5*time.Second) {
		m.t.Error("the connection stays open")
	}
}

func TestMalformedRequestsAreRefused(t *testing.T) {
	cases := []struct {
		text, code string
		status     int
	}{
		{"GET / HTTP/1.1\r\n\r\n", "missing-host", 400},
		{"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", "bad-request-line", 400},
		{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "length-and-coding", 400},
		{"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "unknown-coding", 501},
		{"POST / HTTP/1.1\r\nHost: a\r\nExpect: magic\r\nContent-Length: 1\r\n\r\nx", "expectation-failed", 417},
		{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4194305\r\n\r\n", "message-too-large", 413},
		{"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcdeX", "bad-chunk-end", 400},
		{"GET /" + strings.Repeat("a", 70000) + " HTTP/1.1\r\nHost: a\r\n\r\n", "target-too-long", 414},
		{"GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("a: b\r\n", 128) + "\r\n", "too-many-headers", 431},
		{"GET / HTTP/2.0\r\nHost: a\r\n\r\n", "bad-version", 505},
		{"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", "not-supported", 501},
	}
	for _, c := range cases {
		t.Run(c.code, func(t *testing.T) {
			m := newMesh(t, meshOptions{apps: 1})
			first, bad := m.post(10), m.raw(c.text)
			cl := m.do(first, bad)
			m.finish(first, bad)
			m.ok(first)
			m.refused(bad, cl, c.status, c.code)
			m.settled()
		})
	}
}

// TestHeadersAtTheirLimit: what sidecars add on the way does not make a message
// too large for the next of them.
func TestHeadersAtTheirLimit(t *testing.T) {
	eachTopology(t, meshOptions{apps: 1}, func(t *testing.T, m *mesh) {
		m.apps[0].extra = strings.Repeat("a: b\r\n", 126)
		most := m.raw("GET / HTTP/1.1\r\nHost: a\r\nx-nonce: NONCE\r\n" + strings.Repeat("a: b\r\n", 126) + "\r\n")
		m.do(most)
		m.finish(most)
		m.ok(most)
		longest := m.padded(64<<10, "GET / HTTP/1.1\r\nHost: a\r\nx-nonce: NONCE\r\nX-Forwarded-For: PAD\r\n\r\n")
		m.apps[0].extra = "b: " + strings.Repeat("b", 64<<10-100) + "\r\n"
		m.do(longest)
		m.finish(longest)
		m.ok(longest)
	})
}

// padded is a raw call of n bytes, which PAD in the text is filled up to.
func (m *mesh) padded(n int, text string) *call {
	c := m.raw(text)
	pad := bytes.Repeat([]byte{'p'}, n-len(c.raw)+len("PAD"))
	c.raw = bytes.Replace(c.raw, []byte("PAD"), pad, 1)
	return c
}

// TestOnePastTheHeadLimits: a head at its limit is taken, and one byte more is
// refused, as too long a target only where the request line alone is it.
func TestOnePastTheHeadLimits(t *testing.T) {
	const limit = 64 << 10
	const target, rest = "GET /PAD HTTP/1.1\r\n", "Host: a\r\nx-nonce: NONCE\r\n\r\n"
	for _, c := range []struct {
		name, text, code string
		at, status       int // at: bytes of text that are taken
	}{
		{"header section", "GET / HTTP/1.1\r\na: PAD\r\n" + rest, "header-too-large", limit, 431},
		{"target in a head", target + rest, "header-too-large", limit, 431},
		{"request line", target, "target-too-long", 0, 414},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMesh(t, meshOptions{apps: 1})
			var calls []*call
			if c.at > 0 {
				calls = append(calls, m.padded(c.at, c.text))
			}
			past := m.padded(limit+1, c.text)
			cl := m.do(append(calls, past)...)
			m.finish(past)
			m.ok(calls...)
			m.refused(past, cl, c.status, c.code)
			m.settled()
		})
	}
}

// chunked is a POST of n bytes in chunks of up to 64 KiB.
func (m *mesh) chunked(n int) *call {
	c := m.raw("POST / HTTP/1.1\r\nHost: a\r\nx-nonce: NONCE\r\nTransfer-Encoding: chunked\r\n\r\n")
	for n > 0 {
		k := min(n, 64<<10)
		c.raw = fmt.Appendf(c.raw, "%x\r\n%s\r\n", k, bytes.Repeat([]byte{'c'}, k))
		n -= k
	}
	c.raw = append(c.raw, "0\r\n\r\n"...)
	return c
}

func TestChunkedMessageAtItsLimit(t *testing.T) {
	eachTopology(t, meshOptions{apps: 1}, func(t *testing.T, m *mesh) {
		at, past := m.chunked(maxMessage), m.chunked(maxMessage+1)
		cl := m.do(at, past)
		m.finish(at, past)
		m.ok(at)
		if want := fmt.Sprintf("nonce=%s path=/ body=%d", at.nonce, maxMessage); string(at.body) != want {
			t.Errorf("the application got %q, want %q", at.body, want)
		}
		m.refused(past, cl, 413, "message-too-large")
		m.settled()
	})
}

// TestAnswersAtTheLimit: however an answer is framed, it may be as long as
// limits.message and no longer.
func TestAnswersAtTheLimit(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nx-nonce: n1\r\n"
	chunk := func(n int) string { return fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", n, strings.Repeat("y", n)) }
	for name, answer := range map[string]func(n int) string{
		"chunked":     func(n int) string { return head + "Transfer-Encoding: chunked\r\n\r\n" + chunk(n) },
		"until close": func(n int) string { return head + "\r\n" + strings.Repeat("y", n) },
	} {
		t.Run(name, func(t *testing.T) {
			for n, code := range map[int]string{maxMessage: "", maxMessage + 1: "response-too-large"} {
				eachTopology(t, meshOptions{apps: 1}, func(t *testing.T, m *mesh) {
					m.apps[0].stop()
					m.w.Listen(m.apps[0].addr, m.w.Loop("10.0.1.1-raw"), func() proxy.Stream {
						return &peer{reply: func([]byte) []byte { return []byte(answer(n)) }, hangs: true}
					})
					c := m.get("/")
					m.do(c)
					m.finish(c)
					if c.code != code || code == "" && (c.status != 200 || len(c.body) != n) {
						t.Errorf("%d bytes: status %d %s with %d", n, c.status, c.code, len(c.body))
					}
					m.settled()
				})
			}
		})
	}
}

func TestMessageAtItsLimit(t *testing.T) {
	eachTopology(t, meshOptions{apps: 1}, func(t *testing.T, m *mesh) {
		size := maxMessage
		m.apps[0].body = func(*protocol.Request) []byte { return bytes.Repeat([]byte{'y'}, size) }
		at := m.post(maxMessage)
		m.do(at)
		m.finish(at)
		m.ok(at)
		if len(at.body) != maxMessage {
			t.Errorf("got %d bytes back", len(at.body))
		}
		size++
		past := m.post(10)
		m.do(past)
		m.finish(past)
		if past.status != 502 || past.code != "response-too-large" {
			t.Errorf("status %d %s, want 502 response-too-large", past.status, past.code)
		}
		m.settled()
	})
}

func TestPipelining(t *testing.T) {
	for _, n := range []int{16, 17} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			m := newMesh(t, meshOptions{apps: 1})
			m.apps[0].delay = func() time.Duration { return 20 * time.Millisecond }
			var all []byte
			cl := m.dial(egress)
			for range n {
				c := m.post(10)
				all = append(all, c.raw...)
				c.raw = nil
				cl.calls = append(cl.calls, c)
			}
			calls := cl.calls
			cl.calls[0].raw = all
			m.finish(calls...)
			m.ok(calls[:16]...)
			if n == 17 {
				m.refused(calls[16], cl, 429, "too-many-pipelined")
			}
			if m.apps[0].served != 16 {
				t.Errorf("the application served %d", m.apps[0].served)
			}
			m.settled()
		})
	}
}

// TestRequestsPerConnection: the last request of a connection is answered like
// the others and told so; what is pipelined behind it reaches no application.
func TestRequestsPerConnection(t *testing.T) {
	eachTopology(t, meshOptions{apps: 1, limits: "limits: {requests: 3}"}, func(t *testing.T, m *mesh) {
		one, two, three, past := m.post(10), m.get("/"), m.post(10), m.post(10)
		cl := m.do(one, two, three, past)
		m.finish(one, two, three, past)
		m.ok(one, two, three)
		if one.last || two.last || !three.last {
			t.Errorf("Connection: close with the answers: %t %t %t, want it with the third", one.last, two.last, three.last)
		}
		if past.err == nil || !cl.ended {
			t.Errorf("one past the limit: status %d, connection closed %t", past.status, cl.ended)
		}
		calls := []*call{m.post(10), m.post(10), m.post(10), m.post(10)}
		for _, c := range calls[1:] {
			calls[0].raw = append(calls[0].raw, c.raw...)
			c.raw = nil
		}
		m.do(calls...)
		m.finish(calls...)
		m.ok(calls[:3]...)
		if calls[3].err == nil || m.apps[0].served != 6 {
			t.Errorf("pipelined past the limit: status %d; the application served %d, want 6",
				calls[3].status, m.apps[0].served)
		}
		m.settled()
	})
}

func TestSlowRequests(t *testing.T) {
	cases := []struct {
		text, code string
		after      time.Duration
	}{
		{"GET / HT", "header-timeout", 10 * time.Second},
		{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc", "body-timeout", 30 * time.Second},
	}
	for _, c := range cases {
		t.Run(c.code, func(t *testing.T) {
			m := newMesh(t, meshOptions{apps: 1})
			bad := m.raw(c.text)
			cl := m.do(bad)
			m.finish(bad)
			m.refused(bad, cl, 408, c.code)
			if bad.took < c.after || bad.took > c.after+time.Second {
				t.Errorf("refused after %v, want %v", bad.took, c.after)
			}
			m.settled()
		})
	}
}

func TestIdleConnectionCloses(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1})
	c := m.post(10)
	cl := m.do(c)
	m.finish(c)
	start := m.w.Now()
	if !m.w.RunUntil(func() bool { return cl.ended }, time.Hour) {
		t.Fatal("the idle connection stays open")
	}
	if idle := m.w.Now() - start; idle < 5*time.Minute-time.Second || idle > 5*time.Minute+2*time.Second {
		t.Errorf("closed after %v, want 5 minutes", idle)
	}
}

func TestMaxPending(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, service: ", max_pending: 4"})
	m.apps[0].delay = func() time.Duration { return 20 * time.Millisecond }
	calls := m.burst(5, 10)
	m.finish(calls...)
	over := 0
	for _, c := range calls {
		if c.status == 503 && c.code == "overloaded" {
			over++
		} else if c.status != 200 {
			t.Errorf("status %d %s", c.status, c.code)
		}
	}
	if over != 1 {
		t.Errorf("%d of 5 were refused at max_pending 4", over)
	}
	m.settled()
}

func TestAdmission(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, provider: ", max_concurrency: 2, max_queue: 3",
		service: ", retry: {on: []}"})
	inApp, most := 0, 0
	m.apps[0].delay = func() time.Duration {
		inApp++
		most = max(most, inApp)
		return 10 * time.Millisecond
	}
	m.apps[0].body = func(*protocol.Request) []byte { return nil }
	m.apps[0].done = func() { inApp-- }
	calls := m.burst(6, 10)
	m.finish(calls...)
	over := 0
	for _, c := range calls {
		if c.status == 503 && c.code == "overloaded" {
			over++
		} else if c.status != 200 {
			t.Errorf("status %d %s", c.status, c.code)
		}
	}
	if most != 2 || over != 1 {
		t.Errorf("%d at once in the application, %d of 6 refused; want 2 and 1", most, over)
	}
	m.settled()
}

// What waits in the provider's queue past its deadline never reaches the
// application.
func TestQueueDropsWhatIsTooLate(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, provider: ", max_concurrency: 1", service: ", timeout: 30ms"})
	m.apps[0].delay = func() time.Duration { return 20 * time.Millisecond }
	calls := m.burst(5, 10)
	m.finish(calls...)
	good := 0
	for _, c := range calls {
		if c.status == 200 {
			good++
		} else if c.code != "deadline" {
			t.Errorf("status %d %s", c.status, c.code)
		}
	}
	m.settled()
	if good != 1 || m.apps[0].served > 2 {
		t.Errorf("%d answered, %d served; want 1 and at most 2", good, m.apps[0].served)
	}
}

// TestLargestLimits: with all at the most that a configuration may say, a limit is none.
func TestLargestLimits(t *testing.T) {
	const service = `, max_pending: 1000000000, max_concurrency: 1000000000, max_queue: 1000000000,
		breaker: {consecutive: 1000000000, half_open: 65535, open: 8760h}, outlier: {consecutive: 1000000000},
		rate_limit: {rate: 1000000, burst: 1000000}, lb: {subset: 1000000000, slow_start: 8760h},
		timeout: 8760h, connect_timeout: 8760h, idle_timeout: 8760h`
	const limits = `
limits: {message: 1GiB, header: 1GiB, headers: 65535, pipelined: 65535, requests: 1000000000, buffered: 1024GiB}
timeouts: {header: 8760h, body: 8760h, idle: 8760h, write: 8760h, drain: 8760h}`
	eachTopology(t, meshOptions{service: service, provider: service, limits: limits}, func(t *testing.T, m *mesh) {
		m.apps[0].status = 500
		failed := m.crowd(5, 10, 100)
		m.finish(failed...)
		m.apps[0].status = 200
		calls := m.crowd(5, 10, 100<<10)
		m.finish(calls...)
		m.ok(calls...)
		m.consumer.reload(reloaded(m, `{service: compute}`, `compute: {%s`+service+`}`) + limits)
		calls = m.crowd(5, 10, 100)
		m.finish(calls...)
		m.ok(calls...)
	})
}
