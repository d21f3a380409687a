package proxy_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
)

// What may not leave is answered as a message, and the connection closes.
func TestRefusedToLeave(t *testing.T) {
	long, connect := leavings()[0].head, leavings()[3].head
	fill := func(m *mesh, _ *peer) { m.consumer.proc.Hold(1 << 30) }
	for _, c := range []struct {
		name, says string
		o          meshOptions
		before     func(m *mesh, p *peer)
		status     int
		code       string
	}{
		{"no route", "POST / HTTP/1.1\r\nHost: other\r\nContent-Length: 100000\r\n\r\n",
			meshOptions{match: "match: {host: compute}, "}, nil, 404, "no-route"},
		{"CONNECT without a route", connect, meshOptions{match: "match: {path: /}, "}, nil, 404, "no-route"},
		{"CONNECT that no route names", connect, meshOptions{match: "match: {method: []}, "}, nil, 404, "no-route"},
		{"listener's rate", long, meshOptions{listener: ", rate_limit: {rate: 1}"},
			func(m *mesh, _ *peer) { m.speak(egress, connect); m.w.Run(time.Millisecond) }, 429, "rate-limited"},
		{"no memory", long, meshOptions{}, fill, 503, "overloaded"},
		{"CONNECT with a body", "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nContent-Length: 1\r\n\r\nx", meshOptions{}, nil, 400, "bad-request"},
		{"CONNECT with a long body", "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nContent-Length: 100000\r\n\r\n", meshOptions{}, nil, 400, "bad-request"},
		{"length past all limits", "POST / HTTP/1.1\r\nHost: compute\r\nContent-Length: 9223372036854775807\r\n\r\nhello", meshOptions{}, nil, 413, "message-too-large"},
		{"WebSocket in a circle", strings.Replace(leavings()[2].head, "\r\n\r\n", "\r\n"+strings.Repeat("Via: 1.1 remora\r\n", 9)+"\r\n", 1),
			meshOptions{}, nil, 508, "loop-detected"},
		{"as far as it may go", strings.NewReplacer("POST", "OPTIONS", "\r\n\r\n", "\r\nMax-Forwards: 0\r\n\r\n").Replace(long),
			meshOptions{}, nil, 501, "max-forwards"},
		{"CONNECT in a drain", connect, meshOptions{},
			func(m *mesh, _ *peer) { m.consumer.proc.Drain(); m.w.Run(time.Millisecond) }, 503, "draining"},
		{"unread output", strings.Repeat("GET / HTTP/1.1\r\nHost: compute\r\n\r\n", 2) + long + strings.Repeat("x", 70_000),
			meshOptions{}, nil, 413, "message-too-large"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.apps, c.o.limits = 1, smallMessages
			m, streams, _ := newStreamMesh(t, c.o)
			m.apps[0].delay = func() time.Duration { return 100 * time.Millisecond }
			p := m.speak(egress, "")
			m.until("a connection", func() bool { return p.conn != nil })
			if c.before != nil {
				c.before(m, p)
			}
			left := len(streams.requests)
			m.clients.Do(func() { p.conn.Write([]byte(c.says)) })
			all := m.wait(p)
			refusedWith(t, []byte(all[strings.LastIndex(all, "HTTP/1.1"):]), c.status, c.code)
			if !strings.Contains(all, "X-Request-Id: ") {
				t.Error("the refusal does not name the request")
			}
			if n := len(streams.requests) - left; n != 0 {
				t.Errorf("%d requests left", n)
			}
			if c.code == "overloaded" {
				m.consumer.proc.Hold(-1 << 30)
			}
			settledStreams(m, streams)
		})
	}
}

// Where a driver has no sockets, or nobody carries streams, messages are all
// there is.
func TestNothingLeavesWithoutSockets(t *testing.T) {
	want := map[string]int{"length": 413, "chunks": 413, "WebSocket": 200, "CONNECT": 501}
	for _, carried := range []bool{true, false} {
		for _, l := range leavings() {
			m, c, _ := newStreamMesh(t, meshOptions{apps: 1, limits: smallMessages, noSockets: true})
			if !carried {
				m.consumer.proc.SetStreams(nil)
			}
			p := m.speak(egress, l.head+l.body)
			m.until("an answer", func() bool { return bytes.Contains(p.heard, []byte("\r\n\r\n")) })
			if resp, _, _ := headOf(t, p.heard); resp.Status != want[l.name] {
				t.Errorf("%s, carried %t: status %d, want %d", l.name, carried, resp.Status, want[l.name])
			}
			if len(c.requests) != 0 {
				t.Errorf("%s left", l.name)
			}
			m.w.Reset(p.conn)
			settledStreams(m, c)
		}
	}
}

// Who waits for a 100 before a long body is answered by the application; before
// one whose length is not known, by the sidecar, as for any message.
func TestExpectOfStreams(t *testing.T) {
	for _, l := range leavings()[:2] {
		m, c, _ := newStreamMesh(t, meshOptions{apps: 1, limits: smallMessages})
		head := strings.Replace(l.head, "\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n", 1)
		p := m.speak(egress, head)
		m.w.Run(time.Second)
		if l.name == "chunks" {
			if string(p.heard) != "HTTP/1.1 100 Continue\r\n\r\n" {
				t.Errorf("%s: heard %q", l.name, p.heard)
			}
			m.clients.Do(func() { p.conn.Write([]byte(l.body)) })
		}
		m.until("a stream", func() bool { return len(c.requests) == 1 })
		if passed := bytes.Contains(c.requests[0].Head, []byte("Expect: 100-continue\r\n")); passed != (l.name == "length") {
			t.Errorf("%s: the expectation is passed on: %t", l.name, passed)
		}
		if l.name == "length" && len(p.heard) != 0 {
			t.Errorf("%s: heard %q", l.name, p.heard)
		}
		settledStreams(m, c)
	}
}

// A body of limits.message is a message, whatever its form.
func TestLongestMessageStays(t *testing.T) {
	body := strings.Repeat("x", 64<<10)
	for _, says := range []string{
		"POST / HTTP/1.1\r\nHost: compute\r\nContent-Length: 65536\r\n\r\n" + body,
		"POST / HTTP/1.1\r\nHost: compute\r\nTransfer-Encoding: chunked\r\n\r\n10000\r\n" + body + "\r\n0\r\n\r\n",
	} {
		m, c, _ := newStreamMesh(t, meshOptions{apps: 1, limits: smallMessages})
		var got int
		m.apps[0].seen = func(req *protocol.Request) { got = len(req.Body) }
		p := m.speak(egress, says)
		m.until("an answer", func() bool { return len(p.heard) > 0 })
		if got != 64<<10 || len(c.requests) != 0 {
			t.Errorf("the application got %d bytes, %d requests left", got, len(c.requests))
		}
		m.w.Reset(p.conn)
		settledStreams(m, c)
	}
}
