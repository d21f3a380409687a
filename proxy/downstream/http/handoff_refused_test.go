package http_test

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// TestHandoffRefused checks that a request which may not leave the loop gets a response, and that
// the connection closes.
func TestHandoffRefused(t *testing.T) {
	long, connect := handoffCases()[0].head, handoffCases()[3].head
	fill := func(m *proxytest.Mesh, _ *proxytest.Peer) { m.Consumer.Proc.Charge(1 << 30) }
	for _, c := range []struct {
		name, says string
		o          proxytest.MeshOptions
		before     func(m *proxytest.Mesh, p *proxytest.Peer)
		status     int
		code       string
	}{
		{"no route", "POST / HTTP/1.1\r\nHost: other\r\nContent-Length: 100000\r\n\r\n",
			proxytest.MeshOptions{Match: "match: {host: compute}"}, nil, 404, "no-route"},
		{"CONNECT without a route", connect, proxytest.MeshOptions{Match: "match: {host: compute}"}, nil, 404, "no-route"},
		{"listener's rate", long, proxytest.MeshOptions{Listener: "rate_limit: {rate: 1}"},
			func(m *proxytest.Mesh, _ *proxytest.Peer) {
				m.DialAndSend(proxytest.Egress, connect)
				m.W.Run(time.Millisecond)
			}, 429, "rate-limited"},
		{"no memory", long, proxytest.MeshOptions{}, fill, 503, "overloaded"},
		{"CONNECT with a body", "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nContent-Length: 1\r\n\r\nx", proxytest.MeshOptions{}, nil, 400, "bad-request"},
		{"CONNECT with a long body", "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nContent-Length: 100000\r\n\r\n", proxytest.MeshOptions{}, nil, 400, "bad-request"},
		{"length past all limits", "POST / HTTP/1.1\r\nHost: compute\r\nContent-Length: 9223372036854775807\r\n\r\nhello", proxytest.MeshOptions{}, nil, 413, "message-too-large"},
		{"WebSocket in a loop", strings.Replace(handoffCases()[2].head, "\r\n\r\n", "\r\n"+strings.Repeat("CDN-Loop: remora\r\n", 9)+"\r\n", 1),
			proxytest.MeshOptions{}, nil, 508, "loop-detected"},
		{"Max-Forwards of 0", strings.NewReplacer("POST", "OPTIONS", "\r\n\r\n", "\r\nMax-Forwards: 0\r\n\r\n").Replace(long),
			proxytest.MeshOptions{}, nil, 501, "max-forwards"},
		{"ambiguous path", strings.Replace(long, " /up ", " /..%2f ", 1), proxytest.MeshOptions{Match: "match: {path: /}"}, nil, 400, "bad-path"},
		{"CONNECT in a drain", connect, proxytest.MeshOptions{},
			func(m *proxytest.Mesh, _ *proxytest.Peer) { m.Consumer.Proc.Drain(); m.W.Run(time.Millisecond) }, 503, "draining"},
		{"CONNECT to a port of one service", connect, proxytest.MeshOptions{Listener: "service: compute"}, nil, 501, "not-supported"},
		{"late behind another", "GET / HTTP/1.1\r\nHost: compute\r\n\r\n" + strings.Replace(long, "\r\n\r\n", "\r\nX-Remora-Timeout-Ms: 50\r\n\r\n", 1),
			proxytest.MeshOptions{}, nil, 504, "deadline"},
		{"unread output", strings.Repeat("GET / HTTP/1.1\r\nHost: compute\r\n\r\n", 2) + long + strings.Repeat("x", 70_000),
			proxytest.MeshOptions{}, nil, 413, "message-too-large"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Apps, c.o.Limits = 1, proxytest.SmallMessages
			m, streams, _ := proxytest.NewStreamMesh(t, c.o)
			m.Apps[0].Delay = func() time.Duration { return 100 * time.Millisecond }
			p := m.DialAndSend(proxytest.Egress, "")
			m.RunUntil("a connection", func() bool { return p.Conn != nil })
			if c.before != nil {
				c.before(m, p)
			}
			left := len(streams.Requests)
			m.Clients.Do(func() { p.Conn.Write([]byte(c.says)) })
			all := m.RunUntilClosed(p)
			proxytest.CheckRefusal(t, []byte(all[strings.LastIndex(all, "HTTP/1.1"):]), c.status, c.code)
			if !strings.Contains(all, "X-Request-Id: ") {
				t.Error("no X-Request-Id in the response")
			}
			if n := len(streams.Requests) - left; n != 0 {
				t.Errorf("%d requests handed off", n)
			}
			if c.code == "overloaded" {
				m.Consumer.Proc.Charge(-1 << 30)
			}
			proxytest.CheckStreamsSettled(m, streams)
		})
	}
}

// TestHandoffWithoutSockets checks that no request leaves the loop when the driver has no sockets,
// or when there are no Streams.
func TestHandoffWithoutSockets(t *testing.T) {
	want := map[string]int{"length": 413, "chunks": 413, "WebSocket": 200, "CONNECT": 200}
	for _, carried := range []bool{true, false} {
		if !carried {
			want["CONNECT"] = 501
		}
		for _, l := range handoffCases() {
			m, c, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallMessages, NoSockets: true})
			if !carried {
				m.Consumer.Proc.SetStreams(nil)
			}
			p := m.DialAndSend(proxytest.Egress, l.head+l.body)
			m.RunUntil("a response", func() bool { return bytes.Contains(p.Heard, []byte("\r\n\r\n")) })
			if resp, _, _ := proxytest.DecodeHead(t, p.Heard); resp.Status != want[l.name] {
				t.Errorf("%s, carried %t: status %d, want %d", l.name, carried, resp.Status, want[l.name])
			}
			if len(c.Requests) != 0 {
				t.Errorf("%s: handed off", l.name)
			}
			m.W.Faults.Reset(p.Conn)
			proxytest.CheckStreamsSettled(m, c)
		}
	}
}

// TestHandoffWithExpectation checks who responds to Expect: 100-continue. It is the application if
// the body is long, and the sidecar if its length is unknown, as for any message.
func TestHandoffWithExpectation(t *testing.T) {
	for _, l := range handoffCases()[:2] {
		m, c, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallMessages})
		head := strings.Replace(l.head, "\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n", 1)
		p := m.DialAndSend(proxytest.Egress, head)
		m.W.Run(time.Second)
		if l.name == "chunks" {
			if string(p.Heard) != "HTTP/1.1 100 Continue\r\n\r\n" {
				t.Errorf("%s: received %q", l.name, p.Heard)
			}
			m.Clients.Do(func() { p.Conn.Write([]byte(l.body)) })
		}
		m.RunUntil("a stream", func() bool { return len(c.Requests) == 1 })
		if passed := bytes.Contains(c.Requests[0].Head, []byte("Expect: 100-continue\r\n")); passed != (l.name == "length") {
			t.Errorf("%s: the expectation is passed on: %t", l.name, passed)
		}
		if l.name == "length" && len(p.Heard) != 0 {
			t.Errorf("%s: received %q", l.name, p.Heard)
		}
		proxytest.CheckStreamsSettled(m, c)
	}
}

// TestForwardedExpectation: a listener may leave 100 Continue to the application. A request that expects it then leaves the loop with its
// expectation, unless the request asks for an upgrade.
func TestForwardedExpectation(t *testing.T) {
	const expects = "POST / HTTP/1.1\r\nHost: compute\r\nContent-Length: 4\r\n"
	for head, want := range map[string]string{
		expects + "\r\n":                         "message",
		expects + "Expect: 100-continue\r\n\r\n": "body",
		expects + "Expect: 100-continue\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n": "websocket",
	} {
		m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Listener: "expect: forward"})
		p := m.DialAndSend(proxytest.Egress, head)
		m.W.Run(100 * time.Millisecond)
		left := len(streams.Requests) == 1
		if continues := string(p.Heard) == "HTTP/1.1 100 Continue\r\n\r\n"; left != (want == "body") || continues != (want == "websocket") {
			t.Errorf("%q: left %t, received %q", head, left, p.Heard)
		}
		m.Clients.Do(func() { p.Conn.Write([]byte("body")) })
		m.RunUntil("a stream or a response", func() bool { return len(streams.Requests) == 1 || m.Apps[0].Served == 1 })
		got := "message"
		if len(streams.Requests) == 1 {
			r := streams.Requests[0]
			if got = stats.Handoff(r.Kind).String(); r.Continue != (want == "body") {
				t.Errorf("%q: left as %+v", head, r)
			}
		}
		proxytest.Equal(t, "left as", got, want)
		m.W.Faults.Reset(p.Conn)
		proxytest.CheckStreamsSettled(m, streams)
	}
}

// TestExpectationTrailers: a request that has waited for 100 Continue has the trailers of any other.
func TestExpectationTrailers(t *testing.T) {
	for _, expects := range []string{"", "Expect: 100-continue\r\n"} {
		s := newTurns(t, "")
		s.Say("POST / HTTP/1.1\r\nHost: compute\r\nTransfer-Encoding: chunked\r\n" + expects + "\r\n")
		s.Say("1\r\nx\r\n0\r\nx-sum: 1\r\nvia: 1.1 a\r\nx-remora-class: b\r\nx-request-id: c\r\nx-forwarded-for: 192.0.2.9\r\n\r\n")
		if _, body, _ := strings.Cut(string(s.Apps[0].Heard), "\r\n\r\n"); body != "1\r\nx\r\n0\r\nx-sum: 1\r\n\r\n" {
			t.Errorf("%q: the application gets %q", expects, body)
		}
		s.Answer(response(2, ""))
	}
}

// TestExpectationService: a request whose service refuses it gets its final response in place of 100. What it did not
// take is left for another one.
func TestExpectationService(t *testing.T) {
	const get = "GET / HTTP/1.1\r\nHost: compute\r\n\r\n"
	const head = "POST / HTTP/1.1\r\nHost: compute\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n"
	for _, c := range []struct {
		code, service string
		status        int
		again         time.Duration // after which the service takes requests
	}{
		{"rate-limited", "rate_limit: {rate: 1, burst: 1}", 429, 2 * time.Second},
		{"overloaded", "max_pending: 1", 503, time.Minute},
		{"breaker-open", "breaker: {consecutive: 1, open: 30s}, timeout: 1s", 503, time.Minute},
	} {
		t.Run(c.code, func(t *testing.T) {
			m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Service: c.service})
			delay := 10 * time.Second // of the first request
			m.Apps[0].Delay = func() time.Duration { defer func() { delay = 0 }(); return delay }
			first := m.DialAndSend(proxytest.Egress, get)
			m.W.Run(2 * time.Millisecond)
			if c.code == "breaker-open" {
				m.RunUntil("a failure", func() bool { return strings.Contains(string(first.Heard), " 504 ") })
			}
			p := m.DialAndSend(proxytest.Egress, head)
			proxytest.CheckRefusal(t, []byte(m.RunUntilClosed(p)), c.status, c.code)
			m.W.Run(c.again)
			p = m.DialAndSend(proxytest.Egress, head)
			m.RunUntil("100", func() bool { return string(p.Heard) == "HTTP/1.1 100 Continue\r\n\r\n" })
			m.Clients.Do(func() { p.Conn.Write([]byte("x")) })
			m.RunUntil("a response", func() bool { return strings.Contains(string(p.Heard), " 200 ") })
			proxytest.CheckStreamsSettled(m, streams)
		})
	}
}

// TestExpectationBehindUnread: a client that waits for 100 Continue behind a response which it has not read yet may send the
// body, or more, before its final response. That is ignored.
func TestExpectationBehindUnread(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Match: "match: {host: compute}"})
	m.Apps[0].Body = func(*protocol.Request) []byte { return make([]byte, 2<<20) }
	p := m.DialAndSend(proxytest.Egress, "")
	m.RunUntil("a connection", func() bool { return p.Conn != nil })
	m.W.Faults.PauseReading(p.Conn, true)
	for _, says := range []string{known, "POST / HTTP/1.1\r\nHost: other\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n", "body" + known} {
		m.Clients.Do(func() { p.Conn.Write([]byte(says)) })
		m.W.Run(100 * time.Millisecond)
	}
	m.W.Faults.PauseReading(p.Conn, false)
	heard := m.RunUntilClosed(p)
	proxytest.CheckRefusal(t, []byte(heard[strings.LastIndex(heard, "HTTP/1.1"):]), 404, "no-route")
	if n := strings.Count(heard, "HTTP/1.1 "); n != 2 || m.Apps[0].Served != 1 {
		t.Errorf("%d responses, %d requests served", n, m.Apps[0].Served)
	}
	m.Settled()
}

// TestExpectationTokens: a request that waits with its body takes one token of a rate limit, also if the body makes it
// a stream. Without a token it gets its final response in place of 100.
func TestExpectationTokens(t *testing.T) {
	const head = "POST / HTTP/1.1\r\nHost: compute\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"
	const limit = "rate_limit: {rate: 1, burst: 2}"
	short, long := "1\r\nx\r\n0\r\n\r\n", handoffCases()[1].body
	for _, c := range []struct {
		name string
		o    proxytest.MeshOptions
	}{
		{"listener", proxytest.MeshOptions{Listener: limit}},
		{"route", proxytest.MeshOptions{Match: limit}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Apps, c.o.Limits = 1, proxytest.SmallMessages
			m, streams, _ := proxytest.NewStreamMesh(t, c.o)
			for _, body := range []string{short, long} {
				p := m.DialAndSend(proxytest.Egress, head)
				m.RunUntil("100", func() bool { return string(p.Heard) == "HTTP/1.1 100 Continue\r\n\r\n" })
				m.Clients.Do(func() { p.Conn.Write([]byte(body)) })
				m.RunUntil("the end", func() bool { return strings.Contains(string(p.Heard), " 200 ") || len(streams.Requests) > 0 })
			}
			p := m.DialAndSend(proxytest.Egress, head)
			proxytest.CheckRefusal(t, []byte(m.RunUntilClosed(p)), 429, "rate-limited")
			if log := m.Consumer.LogText.String(); !strings.Contains(log, `msg="request refused" listener=egress code=rate-limited`) {
				t.Errorf("logged: %s", log)
			}
			proxytest.CheckStreamsSettled(m, streams)
		})
	}
}

// TestLongestMessage checks that a body of limits.message is a message, with any framing.
func TestLongestMessage(t *testing.T) {
	body := strings.Repeat("x", 64<<10)
	for _, says := range []string{
		"POST / HTTP/1.1\r\nHost: compute\r\nContent-Length: 65536\r\n\r\n" + body,
		"POST / HTTP/1.1\r\nHost: compute\r\nTransfer-Encoding: chunked\r\n\r\n10000\r\n" + body + "\r\n0\r\n\r\n",
	} {
		m, c, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallMessages})
		var got int
		m.Apps[0].OnRequest = func(req *protocol.Request) { got = len(req.Body) }
		p := m.DialAndSend(proxytest.Egress, says)
		m.RunUntil("a response", func() bool { return len(p.Heard) > 0 })
		if got != 64<<10 || len(c.Requests) != 0 {
			t.Errorf("the application got %d bytes, %d requests handed off", got, len(c.Requests))
		}
		m.W.Faults.Reset(p.Conn)
		proxytest.CheckStreamsSettled(m, c)
	}
}

// TestHandoffWithoutDescriptor checks that a request whose connection can't leave the loop for want of a descriptor is
// refused as too much work. A response waits for a descriptor for its client. After timeouts.write it is refused with a failure
// after which nobody sends the request again, since the application has processed it.
func TestHandoffWithoutDescriptor(t *testing.T) {
	for name, c := range map[string]struct {
		says       string
		good, none int // connections that leave the loop before, and tries that then find no descriptor
		status     int // 0: the response leaves
		code       string
		waits      time.Duration // for the refusal
	}{
		"request":        {handoffCases()[0].head, 0, 1, 503, "overloaded", 0},
		"response":       {proxytest.StreamRequest, 1, 3, 0, "", 0},
		"never response": {proxytest.StreamRequest, 1, math.MaxInt, 502, "response-too-large", 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: proxytest.SmallMessages + "\ntimeouts: {write: 2s}"})
			m.Apps[0].RespondWith(proxytest.StreamResponses[0].Says)
			tries := 0
			m.W.Options.OnDetach = func() error {
				if tries++; tries > c.good && tries-c.good <= c.none {
					return errors.New("too many open files")
				}
				return nil
			}
			began := m.W.Now()
			p := m.DialAndSend(proxytest.Egress, c.says)
			if c.status == 0 {
				m.RunUntil("a stream", func() bool { return len(streams.Responses) == 1 || len(p.Heard) > 0 })
				if len(p.Heard) > 0 {
					t.Errorf("the client got %q", p.Heard)
				}
			} else {
				m.RunUntil("a response", func() bool { return bytes.Contains(p.Heard, []byte("\r\n\r\n")) })
				if waited := m.W.Now() - began; waited < c.waits || waited > c.waits+onTheWay {
					t.Errorf("the client waited for %v, want %v", waited, c.waits)
				}
				resp, _, _ := proxytest.DecodeHead(t, p.Heard)
				if code := string(protocol.Find(resp.Headers, "x-remora-error")); resp.Status != c.status || code != c.code {
					t.Errorf("status %d %s", resp.Status, code)
				}
				if len(protocol.Find(resp.Headers, "retry-after")) > 0 != (c.status == 503) {
					t.Errorf("headers %v", resp.Headers)
				}
				if m.W.Run(2 * time.Second); !p.Ended || !strings.Contains(string(p.Heard), "Connection: close\r\n") {
					t.Errorf("closed %t, received %q", p.Ended, p.Heard)
				}
				if n := m.Consumer.Report().Stats.Errors.Of(c.code); n != 1 {
					t.Errorf("%s is counted %d times", c.code, n)
				}
			}
			proxytest.CheckStreamsSettled(m, streams)
		})
	}
}

// TestClientLeavesWithoutDescriptor: a client that leaves while its response waits for a descriptor ends the response.
func TestClientLeavesWithoutDescriptor(t *testing.T) {
	m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: proxytest.SmallMessages})
	m.Apps[0].RespondWith(proxytest.StreamResponses[0].Says)
	tries := 0
	m.W.Options.OnDetach = func() error {
		if tries++; tries > 1 {
			return errors.New("too many open files")
		}
		return nil
	}
	p := m.DialAndSend(proxytest.Egress, proxytest.StreamRequest)
	m.RunUntil("another try", func() bool { return tries == 3 })
	m.W.Faults.Reset(p.Conn)
	proxytest.CheckStreamsSettled(m, streams)
}
