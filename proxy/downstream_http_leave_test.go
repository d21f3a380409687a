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

// longMessage is more than limits.message of the meshes here.
const (
	smallMessages = "limits: {message: 64KiB}"
	longMessage   = 100_000
)

// leaving is a request with which a connection leaves.
type leaving struct {
	name  string
	kind  proxy.StreamKind
	head  string
	body  string // as it goes over the wire, or what the client says after its head
	whole string // the decoded body
	start string // of the head that the endpoint is to see
}

func leavings() []leaving {
	long := strings.Repeat("0123456789", longMessage/10)
	chunk := func(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }
	return []leaving{
		{"length", proxy.StreamBody, fmt.Sprintf("POST /up HTTP/1.1\r\nHost: compute\r\nContent-Length: %d\r\n\r\n", longMessage),
			long, long, "POST /up HTTP/1.1\r\n"},
		{"chunks", proxy.StreamBody, "PUT /up HTTP/1.1\r\nHost: compute\r\nTransfer-Encoding: chunked\r\n\r\n",
			chunk(long[:40_000]) + chunk(long[40_000:]) + "0\r\n\r\n", long, "PUT /up HTTP/1.1\r\n"},
		{"WebSocket", proxy.StreamWebSocket, "GET /chat HTTP/1.1\r\nHost: compute\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
			"early", "", "GET /chat HTTP/1.1\r\n"},
		{"CONNECT", proxy.StreamConnect, "CONNECT db:5432 HTTP/1.1\r\nHost: db:5432\r\n\r\n", "early", "", ""},
	}
}

// check looks at what left, of which more has arrived at its socket.
func (l *leaving) check(t *testing.T, r *proxy.StreamRequest, more []byte) {
	t.Helper()
	if r.Kind != l.kind || r.Service != "compute" || r.Timeout != 15*time.Second || r.Minor != 1 || r.ToHead {
		t.Errorf("left as %+v", r)
	}
	if !bytes.HasPrefix(r.Head, []byte(l.start)) || len(l.start) > 0 != (len(r.Head) > 0) {
		t.Errorf("the head is %q", r.Head)
	}
	for _, courtesy := range []string{"Via: ", "X-Forwarded-For: ", "X-Request-Id: "} {
		if len(r.Head) > 0 && !bytes.Contains(r.Head, []byte(courtesy)) {
			t.Errorf("no %sin %q", courtesy, r.Head)
		}
	}
	if l.kind != proxy.StreamBody {
		if got := string(r.Rest) + string(more); got != l.body {
			t.Errorf("%d bytes behind the head, want %q", len(got), l.body)
		}
		return
	}
	if r.Chunks != (l.name == "chunks") {
		t.Errorf("announces chunks: %t", r.Chunks)
	}
	if got := whole(t, r, more); string(got) != l.whole || !r.Body.Done() {
		t.Errorf("%d bytes of body, done %t; want %d", len(got), r.Body.Done(), len(l.whole))
	}
}

// Each kind leaves at once when nothing else is to be answered, and no byte of it
// is lost wherever the input is cut.
func TestRequestsLeave(t *testing.T) {
	for seed, l := range leavings() {
		t.Run(l.name, func(t *testing.T) {
			m, c, _ := newStreamMesh(t, meshOptions{apps: 1, seed: uint64(seed), limits: smallMessages})
			m.speak(egress, l.head+l.body)
			m.until("a stream", func() bool { return len(c.requests) == 1 })
			m.w.Run(time.Second)
			l.check(t, c.requests[0], drained(t, c.sockets[0]))
			if n := m.consumer.proc.Held(); n != 0 {
				t.Errorf("%d bytes are still counted for what has left", n)
			}
			report := m.consumer.report()
			if report.Stats.Left[proxy.Departure(l.kind)] != 1 || report.Stats.Connections != 0 {
				t.Errorf("departures %v, %d connections", report.Stats.Left, report.Stats.Connections)
			}
			settledStreams(m, c)
		})
	}
}

// One read may bring more than a message: what is behind the head leaves with it.
func TestRequestsLeaveWithALongRead(t *testing.T) {
	for _, l := range leavings()[:2] {
		for seed := range uint64(20) {
			m, c, _ := newStreamMesh(t, meshOptions{apps: 1, seed: seed, limits: "limits: {message: 4KiB}"})
			m.speak(egress, l.head+l.body)
			m.until("a stream", func() bool { return len(c.requests) == 1 })
			m.w.Run(time.Second)
			l.check(t, c.requests[0], drained(t, c.sockets[0]))
			settledStreams(m, c)
		}
	}
}

// A request leaves after the answers to those before it, with all that came
// meanwhile.
func TestRequestLeavesAfterPredecessors(t *testing.T) {
	all := leavings()
	for seed := range 40 {
		l := all[seed%len(all)]
		t.Run(fmt.Sprint(l.name, seed), func(t *testing.T) {
			m, c, _ := newStreamMesh(t, meshOptions{apps: 1, seed: uint64(seed), limits: smallMessages})
			m.apps[0].delay = func() time.Duration { return 100 * time.Millisecond }
			first, second := m.get("/1"), m.get("/2")
			quarter := len(l.body) / 4
			p := m.speak(egress, string(first.raw)+string(second.raw)+l.head+l.body[:quarter])
			say := func(b string) { m.clients.Do(func() { p.conn.Write([]byte(b)) }) }
			m.w.Run(50 * time.Millisecond)
			say(l.body[quarter : 2*quarter])
			m.w.Run(100 * time.Millisecond)
			if n := len(c.requests); n != 0 {
				t.Fatalf("%d requests left before the one before them was answered", n)
			}
			m.until("two answers", func() bool { return bytes.Count(p.heard, []byte("nonce=")) == 2 })
			say(l.body[2*quarter:])
			m.until("a stream", func() bool { return len(c.requests) == 1 })
			m.w.Run(time.Second)
			if n := bytes.Count(p.heard, []byte("HTTP/1.1 200")); n != 2 || p.ended {
				t.Errorf("%d answers before the stream, closed %t", n, p.ended)
			}
			l.check(t, c.requests[0], drained(t, c.sockets[0]))
			settledStreams(m, c)
		})
	}
}

// What waits to leave counts against limits.buffered, and no more once it has
// left.
func TestWaitingRequestIsCounted(t *testing.T) {
	m, c, _ := newStreamMesh(t, meshOptions{apps: 1, limits: smallMessages})
	m.apps[0].delay = func() time.Duration { return 100 * time.Millisecond }
	l := leavings()[1]
	m.speak(egress, getStream+l.head+l.body)
	m.w.Run(50 * time.Millisecond)
	if n := m.consumer.proc.Held(); len(c.requests) != 0 || n < longMessage {
		t.Errorf("%d left; %d bytes are counted", len(c.requests), n)
	}
	m.until("a stream", func() bool { return len(c.requests) == 1 })
	if n := m.consumer.proc.Held(); n != 0 {
		t.Errorf("%d bytes are still counted", n)
	}
	settledStreams(m, c)
}

// bulky is a mesh in which an answer is too long for the buffers on its way.
func bulky(t *testing.T, limits string) (m *mesh, c *carrier) {
	m, c, _ = newStreamMesh(t, meshOptions{apps: 1, direct: true, limits: limits})
	m.apps[0].body = func(*protocol.Request) []byte { return make([]byte, 2<<20) }
	return m, c
}

// While a client has not read what came before, its connection stays.
func TestRequestWaitsForSlowReader(t *testing.T) {
	m, c := bulky(t, "")
	p := m.speak(egress, "")
	m.until("a connection", func() bool { return p.conn != nil })
	m.w.Hold(p.conn, true)
	l := leavings()[3]
	m.clients.Do(func() { p.conn.Write([]byte("GET /big HTTP/1.1\r\nHost: compute\r\n\r\n" + l.head + l.body)) })
	m.w.Run(time.Second)
	if n := len(c.requests); n != 0 {
		t.Fatalf("%d requests left with output buffered", n)
	}
	m.w.Hold(p.conn, false)
	m.until("a stream", func() bool { return len(c.requests) == 1 })
	m.until("the answer before it", func() bool { return len(p.heard) > 2<<20 })
	l.check(t, c.requests[0], drained(t, c.sockets[0]))
	settledStreams(m, c)
}

// A client that never reads is closed for that, and nothing leaves.
func TestWaitingRequestEndsWithItsConnection(t *testing.T) {
	for name, end := range map[string]func(m *mesh, p *peer){
		"write timeout": func(m *mesh, _ *peer) { m.w.Run(5 * time.Second) },
		"reset":         func(m *mesh, p *peer) { m.w.Reset(p.conn) },
	} {
		t.Run(name, func(t *testing.T) {
			m, c := bulky(t, "timeouts: {write: 4s}")
			p := m.speak(egress, "")
			m.until("a connection", func() bool { return p.conn != nil })
			m.w.Hold(p.conn, true)
			m.clients.Do(func() {
				p.conn.Write([]byte("GET /big HTTP/1.1\r\nHost: compute\r\n\r\n" + leavings()[0].head + "start"))
			})
			m.w.Run(time.Second)
			end(m, p)
			m.w.Hold(p.conn, false)
			m.w.Run(time.Second)
			if len(c.requests) != 0 {
				t.Errorf("%d requests left", len(c.requests))
			}
			settledStreams(m, c)
		})
	}
}
