package proxy_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
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
		head := "GET / HTTP/1.1\r\nHost: a\r\nx-nonce: NONCE\r\nX-Forwarded-For: "
		longest := m.raw(head + strings.Repeat("f", 64<<10-len(head)-len("\r\n\r\n")) + "\r\n\r\n")
		m.apps[0].extra = "b: " + strings.Repeat("b", 64<<10-100) + "\r\n"
		m.do(longest)
		m.finish(longest)
		m.ok(longest)
	})
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
