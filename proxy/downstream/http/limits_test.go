package http_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	downstream "github.com/remora-proxy/remora/proxy/downstream/http"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestConnectRefused checks the refusal of a CONNECT behind a good request. The corpus has the other refusals.
func TestConnectRefused(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	first, bad := m.Post(10), m.Raw("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n")
	cl := m.Do(first, bad)
	m.Finish(first, bad)
	m.OK(first)
	checkRefused(m, bad, cl, 501, "not-supported")
	m.Settled()
}

// TestPlaintextResponse: a client that speaks plain text to a port with TLS learns why the connection closes.
func TestPlaintextResponse(t *testing.T) {
	proxytest.CheckRefusal(t, downstream.PlaintextResponse(), 400, "tls-required")
}

// TestHeadersAtLimit checks that the headers which a sidecar adds don't make a message too large
// for the next one.
func TestHeadersAtLimit(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 1}, func(t *testing.T, m *proxytest.Mesh) {
		m.Apps[0].ExtraHeaders = strings.Repeat("a: b\r\n", 126)
		most := m.Raw("GET / HTTP/1.1\r\nHost: a\r\nx-nonce: NONCE\r\n" + strings.Repeat("a: b\r\n", 126) + "\r\n")
		m.Do(most)
		m.OK(most)
		longest := padded(m, 64<<10, "GET / HTTP/1.1\r\nHost: a\r\nx-nonce: NONCE\r\nX-Forwarded-For: PAD\r\n\r\n")
		m.Apps[0].ExtraHeaders = "b: " + strings.Repeat("b", 64<<10-100) + "\r\n"
		m.Do(longest)
		m.OK(longest)
	})
}

// TestHeadLimits checks that a head at its limit is accepted, and that one byte more is refused.
// The target is too long only if the request line alone exceeds the limit.
func TestHeadLimits(t *testing.T) {
	const limit = 64 << 10
	const target, rest = "GET /PAD HTTP/1.1\r\n", "Host: a\r\nx-nonce: NONCE\r\n\r\n"
	for _, c := range []struct {
		name, text, code string
		at, status       int // at is the longest text that is accepted; 0 skips it
	}{
		{"header section", "GET / HTTP/1.1\r\na: PAD\r\n" + rest, "header-too-large", limit, 431},
		{"target in a head", target + rest, "header-too-large", limit, 431},
		{"request line", target, "target-too-long", 0, 414},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
			var calls []*proxytest.Call
			if c.at > 0 {
				calls = append(calls, padded(m, c.at, c.text))
			}
			past := padded(m, limit+1, c.text)
			cl := m.Do(append(calls, past)...)
			m.Finish(past)
			m.OK(calls...)
			checkRefused(m, past, cl, c.status, c.code)
			m.Settled()
		})
	}
}

// TestChunkedRequestAtLimit checks that a chunked body may be as long as limits.message.
func TestChunkedRequestAtLimit(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 1}, func(t *testing.T, m *proxytest.Mesh) {
		at, past := chunked(m, proxytest.MaxMessage), chunked(m, proxytest.MaxMessage+1)
		cl := m.Do(at, past)
		m.Finish(at, past)
		m.OK(at)
		if want := fmt.Sprintf("nonce=%s path=/ body=%d", at.Nonce, proxytest.MaxMessage); string(at.Body) != want {
			t.Errorf("the application got %q, want %q", at.Body, want)
		}
		checkRefused(m, past, cl, 413, "message-too-large")
		m.Settled()
	})
}

// TestResponsesAtLimit checks that a response may be as long as limits.message and no longer, with
// any framing.
func TestResponsesAtLimit(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nx-nonce: n1\r\n"
	chunk := func(n int) string { return fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", n, strings.Repeat("y", n)) }
	for name, response := range map[string]func(n int) string{
		"chunked":     func(n int) string { return head + "Transfer-Encoding: chunked\r\n\r\n" + chunk(n) },
		"until close": func(n int) string { return head + "\r\n" + strings.Repeat("y", n) },
	} {
		t.Run(name, func(t *testing.T) {
			for n, code := range map[int]string{proxytest.MaxMessage: "", proxytest.MaxMessage + 1: "response-too-large"} {
				proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 1}, func(t *testing.T, m *proxytest.Mesh) {
					m.Apps[0].Stop()
					m.W.Net.Listen(m.Apps[0].Addr, m.W.Loop("10.0.1.1-raw"), func() loop.Receiver {
						return &proxytest.Peer{Reply: func([]byte) []byte { return []byte(response(n)) }, ClosesAfterReply: true}
					})
					c := m.Get("/")
					m.Do(c)
					m.Finish(c)
					if c.Code != code || code == "" && (c.Status != 200 || len(c.Body) != n) {
						t.Errorf("%d bytes: status %d %s with %d", n, c.Status, c.Code, len(c.Body))
					}
					m.Settled()
				})
			}
		})
	}
}

// TestResponseTrailers: a response with trailers keeps them, and has all of its body, whatever its length.
func TestResponseTrailers(t *testing.T) {
	for _, n := range []int{1, 16 << 10, 16<<10 + 1, 300 << 10} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
		body := strings.Repeat("y", n)
		says := fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\nx-sum: 1\r\n\r\n", n, body)
		m.Apps[0].RespondWith("HTTP/1.1 200 OK\r\n" + says)
		p := m.DialAndSend(proxytest.Egress, "GET / HTTP/1.1\r\nHost: compute\r\nTE: trailers\r\n\r\n")
		m.RunUntil("the response", func() bool { return strings.HasSuffix(string(p.Heard), "\r\n\r\n") })
		m.W.Run(time.Second)
		_, rest, _ := strings.Cut(string(p.Heard), "\r\n\r\n")
		if want := says[strings.Index(says, "\r\n\r\n")+4:]; rest != want {
			t.Errorf("%d bytes: the client got %d of %d bytes: %.30q", n, len(rest), len(want), rest)
		}
		m.Settled()
	}
}

// TestMessagesAtLimit checks a request and a response with a body of limits.message.
func TestMessagesAtLimit(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 1}, func(t *testing.T, m *proxytest.Mesh) {
		size := proxytest.MaxMessage
		m.Apps[0].Body = func(*protocol.Request) []byte { return bytes.Repeat([]byte{'y'}, size) }
		at := m.Post(proxytest.MaxMessage)
		m.Do(at)
		m.OK(at)
		if len(at.Body) != proxytest.MaxMessage {
			t.Errorf("got %d bytes back", len(at.Body))
		}
		size++
		past := m.Post(10)
		m.Do(past)
		m.Finish(past)
		if past.Status != 502 || past.Code != "response-too-large" {
			t.Errorf("status %d %s, want 502 response-too-large", past.Status, past.Code)
		}
		m.Settled()
	})
}

// TestPipelinedLimit checks that limits.pipelined requests of one read get responses, and that
// one more is refused.
func TestPipelinedLimit(t *testing.T) {
	for _, n := range []int{16, 17} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
			m.Apps[0].Delay = func() time.Duration { return 20 * time.Millisecond }
			var all []byte
			cl := m.Dial(proxytest.Egress)
			for range n {
				c := m.Post(10)
				all = append(all, c.Raw...)
				c.Raw = nil
				cl.Calls = append(cl.Calls, c)
			}
			calls := cl.Calls
			cl.Calls[0].Raw = all
			m.Finish(calls...)
			m.OK(calls[:16]...)
			if n == 17 {
				checkRefused(m, calls[16], cl, 429, "too-many-pipelined")
			}
			if m.Apps[0].Served != 16 {
				t.Errorf("the application served %d", m.Apps[0].Served)
			}
			m.Settled()
		})
	}
}

// TestRefusedHead checks that the refusal of a HEAD has no body (RFC 9110 section 9.3.2).
func TestRefusedHead(t *testing.T) {
	const head = "HEAD / HTTP/1.1\r\nHost: a\r\n"
	for _, c := range []struct{ name, text, code string }{
		{"a length and a coding", head + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", "length-and-coding"},
		{"malformed field", head + "a b\r\n\r\n", "space-before-colon"},
		{"bad target", "HEAD /\x01 HTTP/1.1\r\nHost: a\r\n\r\n", "bad-target"},
		{"without Host", "HEAD / HTTP/1.1\r\n\r\n", "missing-host"},
		{"behind an empty line", "\r\n" + head + "a b\r\n\r\n", "space-before-colon"},
		{"too many fields", head + strings.Repeat("a: b\r\n", 200) + "\r\n", "too-many-headers"},
		{"body too large", head + "Content-Length: 999999999999\r\n\r\n", "message-too-large"},
		{"bad chunk", head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", "bad-chunk-size"},
		{"rest of the head is late", head, "header-timeout"},
		{"rest of the body is late", head + "Content-Length: 9\r\n\r\nabc", "body-timeout"},
		{"pipelined", strings.Repeat(head+"\r\n", 17), "too-many-pipelined"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
			m.Apps[0].Delay = func() time.Duration { return 20 * time.Millisecond }
			p := &proxytest.Peer{Says: []byte(c.text)}
			m.Clients.Do(func() { m.Clients.Dial(proxytest.Egress, time.Second, p) })
			if !m.W.RunUntil(func() bool { return p.Ended }, time.Minute) {
				t.Fatal("the connection stays open")
			}
			refusal := p.Heard[bytes.LastIndex(p.Heard, []byte("HTTP/1.1 ")):]
			if !bytes.Contains(refusal, []byte(c.code)) {
				t.Errorf("%q has no code %s", refusal, c.code)
			}
			if _, body, _ := bytes.Cut(refusal, []byte("\r\n\r\n")); len(body) > 0 {
				t.Errorf("the refusal has a body: %q", refusal)
			}
			m.Settled()
		})
	}
}

// TestRequestsPerConnection checks limits.requests. The last response says that the connection
// closes; a request pipelined behind it reaches no application.
func TestRequestsPerConnection(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{Apps: 1, Limits: "limits: {requests: 3}"}, func(t *testing.T, m *proxytest.Mesh) {
		one, two, three, past := m.Post(10), m.Get("/"), m.Post(10), m.Post(10)
		cl := m.Do(one, two, three, past)
		m.Finish(one, two, three, past)
		m.OK(one, two, three)
		if one.Last || two.Last || !three.Last {
			t.Errorf("Connection: close with the responses: %t %t %t, want it with the third", one.Last, two.Last, three.Last)
		}
		if past.Err == nil || !cl.Ended {
			t.Errorf("one past the limit: status %d, connection closed %t", past.Status, cl.Ended)
		}
		calls := []*proxytest.Call{m.Post(10), m.Post(10), m.Post(10), m.Post(10)}
		for _, c := range calls[1:] {
			calls[0].Raw = append(calls[0].Raw, c.Raw...)
			c.Raw = nil
		}
		m.Do(calls...)
		m.Finish(calls...)
		m.OK(calls[:3]...)
		if calls[3].Err == nil || m.Apps[0].Served != 6 {
			t.Errorf("pipelined past the limit: status %d; the application served %d, want 6",
				calls[3].Status, m.Apps[0].Served)
		}
		m.Settled()
	})
}

// TestSlowRequests checks that an incomplete request is refused after its timeout.
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
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
			bad := m.Raw(c.text)
			cl := m.Do(bad)
			m.Finish(bad)
			checkRefused(m, bad, cl, 408, c.code)
			if bad.Took < c.after || bad.Took > c.after+time.Second {
				t.Errorf("refused after %v, want %v", bad.Took, c.after)
			}
			m.Settled()
		})
	}
}

// TestIdleConnectionCloses checks that a connection closes after timeouts.idle.
func TestIdleConnectionCloses(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	c := m.Post(10)
	cl := m.Do(c)
	m.Finish(c)
	start := m.W.Now()
	if !m.W.RunUntil(func() bool { return cl.Ended }, time.Hour) {
		t.Fatal("the idle connection stays open")
	}
	if idle := m.W.Now() - start; idle < 5*time.Minute-time.Second || idle > 5*time.Minute+2*time.Second {
		t.Errorf("closed after %v, want 5 minutes", idle)
	}
}

// TestMaxPending checks that max_pending requests at a time are accepted, and no more. Each HTTP/1.1 client
// has one request at a time, pipelined or not, so the last eighth is theirs, too.
func TestMaxPending(t *testing.T) {
	for _, most := range []int{4, 7, 8, 16} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Service: fmt.Sprintf("max_pending: %d, retry: {on: []}", most)})
			m.Apps[0].Delay = func() time.Duration { return 20 * time.Millisecond }
			var first, all []*proxytest.Call
			for range most + 1 {
				a, b := m.Post(10), m.Post(10)
				a.Raw, b.Raw = append(a.Raw, b.Raw...), nil // pipelined
				c := m.Do(a)
				c.Calls = append(c.Calls, b)
				first, all = append(first, a), append(all, a, b)
			}
			m.Finish(first...)
			if over := proxytest.CountCodes(first); over["overloaded"] != 1 || over[""] != most {
				t.Errorf("of %d requests: %v", most+1, over)
			}
			m.Finish(all...)
			m.Settled()
		})
	}
}

// TestAdmission checks max_concurrency and max_queue.
func TestAdmission(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Provider: "max_concurrency: 2, max_queue: 3",
		Service: "retry: {on: []}"})
	inApp, most := 0, 0
	m.Apps[0].Delay = func() time.Duration {
		inApp++
		most = max(most, inApp)
		return 10 * time.Millisecond
	}
	m.Apps[0].Body = func(*protocol.Request) []byte { return nil }
	m.Apps[0].OnServed = func() { inApp-- }
	calls := m.Burst(6, 10)
	m.Finish(calls...)
	over := 0
	for _, c := range calls {
		if c.Status == 503 && c.Code == "overloaded" {
			over++
		} else if c.Status != 200 {
			t.Errorf("status %d %s", c.Status, c.Code)
		}
	}
	if most != 2 || over != 1 {
		t.Errorf("%d at a time in the application, %d of 6 refused; want 2 and 1", most, over)
	}
	m.Settled()
}

// TestDeadlineInQueue checks that a request whose deadline passes in the provider's queue never
// reaches the application.
func TestDeadlineInQueue(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Provider: "max_concurrency: 1", Service: "timeout: 30ms"})
	m.Apps[0].Delay = func() time.Duration { return 20 * time.Millisecond }
	calls := m.Burst(5, 10)
	m.Finish(calls...)
	good := 0
	for _, c := range calls {
		if c.Status == 200 {
			good++
		} else if c.Code != "deadline" {
			t.Errorf("status %d %s", c.Status, c.Code)
		}
	}
	m.Settled()
	if good != 1 || m.Apps[0].Served > 2 {
		t.Errorf("%d responses, %d served; want 1 and at most 2", good, m.Apps[0].Served)
	}
}

// TestLargestLimits checks that the highest values of all limits limit nothing.
func TestLargestLimits(t *testing.T) {
	const service = `max_pending: 1000000000, max_concurrency: 1000000000, max_queue: 1000000000,
		breaker: {consecutive: 1000000000, half_open: 65535, open: 8760h}, outlier: {consecutive: 1000000000},
		rate_limit: {rate: 1000000, burst: 1000000}, lb: {subset: 1000000000, slow_start: 8760h},
		timeout: 8760h, connect_timeout: 8760h, idle_timeout: 8760h`
	const limits = `
limits: {message: 1GiB, header: 1GiB, headers: 65535, pipelined: 65535, requests: 1000000000, buffered: 1024GiB}
timeouts: {header: 8760h, body: 8760h, idle: 8760h, write: 8760h, drain: 8760h}`
	proxytest.EachTopology(t, proxytest.MeshOptions{Service: service, Provider: service, Limits: limits}, func(t *testing.T, m *proxytest.Mesh) {
		m.Apps[0].Status = 500
		failed := m.Crowd(5, 10, 100)
		m.Finish(failed...)
		m.Apps[0].Status = 200
		calls := m.Crowd(5, 10, 100<<10)
		m.OK(calls...)
		m.Consumer.Reload(proxytest.ReloadYAML(m, `{service: compute}`, `compute: {%s, `+service+`}`) + limits)
		calls = m.Crowd(5, 10, 100)
		m.OK(calls...)
	})
}

// checkRefused checks that c got an error response of the sidecar, after which the
// connection closes.
func checkRefused(m *proxytest.Mesh, c *proxytest.Call, cl *proxytest.Client, status int, code string) {
	m.T.Helper()
	if c.Status != status || c.Code != code {
		m.T.Errorf("status %d %s (%v), want %d %s", c.Status, c.Code, c.Err, status, code)
	}
	if !m.W.RunUntil(func() bool { return cl.Ended }, 5*time.Second) {
		m.T.Error("the connection stays open")
	}
}

// padded returns a raw call of n bytes. PAD in the text becomes padding.
func padded(m *proxytest.Mesh, n int, text string) *proxytest.Call {
	c := m.Raw(text)
	pad := bytes.Repeat([]byte{'p'}, n-len(c.Raw)+len("PAD"))
	c.Raw = bytes.Replace(c.Raw, []byte("PAD"), pad, 1)
	return c
}

// chunked returns a POST of n bytes in chunks of up to 64 KiB.
func chunked(m *proxytest.Mesh, n int) *proxytest.Call {
	c := m.Raw("POST / HTTP/1.1\r\nHost: a\r\nx-nonce: NONCE\r\nTransfer-Encoding: chunked\r\n\r\n")
	for n > 0 {
		k := min(n, 64<<10)
		c.Raw = fmt.Appendf(c.Raw, "%x\r\n%s\r\n", k, bytes.Repeat([]byte{'c'}, k))
		n -= k
	}
	c.Raw = append(c.Raw, "0\r\n\r\n"...)
	return c
}
