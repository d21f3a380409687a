package http_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// handoffCase is a request with which a connection leaves the loop.
type handoffCase struct {
	name  string
	kind  stats.StreamKind
	head  string
	body  string // encoded, or the bytes that the client sends after the head
	whole string // the decoded body
	start string // of the head that the endpoint gets
}

func handoffCases() []handoffCase {
	long := strings.Repeat("0123456789", proxytest.LongBodySize/10)
	chunk := func(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }
	return []handoffCase{
		{"length", stats.StreamBody, fmt.Sprintf("POST /up HTTP/1.1\r\nHost: compute\r\nContent-Length: %d\r\n\r\n", proxytest.LongBodySize),
			long, long, "POST /up HTTP/1.1\r\n"},
		{"chunks", stats.StreamBody, "PUT /up HTTP/1.1\r\nHost: compute\r\nTransfer-Encoding: chunked\r\n\r\n",
			chunk(long[:40_000]) + chunk(long[40_000:]) + "0\r\n\r\n", long, "PUT /up HTTP/1.1\r\n"},
		{"WebSocket", stats.StreamWebSocket, "GET /chat HTTP/1.1\r\nHost: compute\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
			"early", "", "GET /chat HTTP/1.1\r\n"},
		{"CONNECT", stats.StreamConnect, "CONNECT db:5432 HTTP/1.1\r\nHost: db:5432\r\n\r\n", "\x16\x03early", "", ""},
	}
}

// check compares a request that left, and the bytes that arrived at its socket after that, with
// the case.
func (l *handoffCase) check(t *testing.T, r *downstream.StreamRequest, more []byte) {
	t.Helper()
	if r.Kind != l.kind || r.Service != "compute" || r.Timeout != 15*time.Second || r.Minor != 1 || r.ToHead || r.Unrouted != nil || r.Opened != (l.kind == stats.StreamConnect) {
		t.Errorf("handed off as %+v", r)
	}
	if !bytes.HasPrefix(r.Head, []byte(l.start)) || len(l.start) > 0 != (len(r.Head) > 0) {
		t.Errorf("the head is %q", r.Head)
	}
	for _, name := range []string{"CDN-Loop: ", "X-Forwarded-For: ", "X-Request-Id: "} {
		if len(r.Head) > 0 && !bytes.Contains(r.Head, []byte(name)) {
			t.Errorf("no %sin %q", name, r.Head)
		}
	}
	if l.kind != stats.StreamBody {
		if got := string(r.Rest) + string(more); got != l.body {
			t.Errorf("%d bytes behind the head, want %q", len(got), l.body)
		}
		return
	}
	if r.Chunks != (l.name == "chunks") {
		t.Errorf("announces chunks: %t", r.Chunks)
	}
	if got := proxytest.WholeBody(t, r, more); string(got) != l.whole || !r.Body.Done() {
		t.Errorf("%d bytes of body, done %t; want %d", len(got), r.Body.Done(), len(l.whole))
	}
}

// TestHandoff checks that each kind leaves at once when no other request is in flight, and that
// no byte is lost wherever the input is split.
func TestHandoff(t *testing.T) {
	for seed, l := range handoffCases() {
		t.Run(l.name, func(t *testing.T) {
			m, c, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Seed: uint64(seed), Limits: proxytest.SmallMessages})
			m.DialAndSend(proxytest.Egress, l.head+l.body)
			m.RunUntil("a stream", func() bool { return len(c.Requests) == 1 })
			m.W.Run(time.Second)
			l.check(t, c.Requests[0], proxytest.ReadArrived(t, c.Sockets[0]))
			if n := m.Consumer.Proc.Held(); n != 0 {
				t.Errorf("%d bytes are still counted after the handoff", n)
			}
			report := m.Consumer.Report()
			if report.Stats.Handoffs[stats.Handoff(l.kind)] != 1 || report.Stats.Connections != 0 {
				t.Errorf("handoffs %v, %d connections", report.Stats.Handoffs, report.Stats.Connections)
			}
			proxytest.CheckStreamsSettled(m, c)
		})
	}
}

// TestHandoffWithinLongRead checks that a long read leaves with the request: all bytes after the
// head do.
func TestHandoffWithinLongRead(t *testing.T) {
	for _, l := range handoffCases()[:2] {
		for seed := range uint64(20) {
			m, c, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Seed: seed, Limits: "limits: {message: 4KiB}"})
			m.DialAndSend(proxytest.Egress, l.head+l.body)
			m.RunUntil("a stream", func() bool { return len(c.Requests) == 1 })
			m.W.Run(time.Second)
			l.check(t, c.Requests[0], proxytest.ReadArrived(t, c.Sockets[0]))
			proxytest.CheckStreamsSettled(m, c)
		}
	}
}

// TestHandoffAfterResponses checks that a request leaves after the responses to those before it,
// with all bytes that were received meanwhile.
func TestHandoffAfterResponses(t *testing.T) {
	all := handoffCases()
	for seed := range 40 {
		l := all[seed%len(all)]
		t.Run(fmt.Sprint(l.name, seed), func(t *testing.T) {
			m, c, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Seed: uint64(seed), Limits: proxytest.SmallMessages})
			m.Apps[0].Delay = func() time.Duration { return 100 * time.Millisecond }
			first, second := m.Get("/1"), m.Get("/2")
			quarter := len(l.body) / 4
			p := m.DialAndSend(proxytest.Egress, string(first.Raw)+string(second.Raw)+l.head+l.body[:quarter])
			say := func(b string) { m.Clients.Do(func() { p.Conn.Write([]byte(b)) }) }
			m.W.Run(50 * time.Millisecond)
			say(l.body[quarter : 2*quarter])
			m.W.Run(100 * time.Millisecond)
			if n := len(c.Requests); n != 0 {
				t.Fatalf("%d requests handed off before the response to an earlier one", n)
			}
			m.RunUntil("two responses", func() bool { return bytes.Count(p.Heard, []byte("nonce=")) == 2 })
			say(l.body[2*quarter:])
			m.RunUntil("a stream", func() bool { return len(c.Requests) == 1 })
			m.W.Run(time.Second)
			want := 2
			if l.kind == stats.StreamConnect { // which has its response before it leaves
				want++
			}
			if n := bytes.Count(p.Heard, []byte("HTTP/1.1 200")); n != want || p.Ended {
				t.Errorf("%d responses before the stream, closed %t", n, p.Ended)
			}
			l.check(t, c.Requests[0], proxytest.ReadArrived(t, c.Sockets[0]))
			proxytest.CheckStreamsSettled(m, c)
		})
	}
}

// TestHandoffMemory checks that a request counts against limits.buffered while it waits to leave,
// and not after that.
func TestHandoffMemory(t *testing.T) {
	m, c, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallMessages})
	m.Apps[0].Delay = func() time.Duration { return 100 * time.Millisecond }
	l := handoffCases()[1]
	m.DialAndSend(proxytest.Egress, proxytest.StreamRequest+l.head+l.body)
	m.W.Run(50 * time.Millisecond)
	if n := m.Consumer.Proc.Held(); len(c.Requests) != 0 || n < proxytest.LongBodySize {
		t.Errorf("%d left; %d bytes are counted", len(c.Requests), n)
	}
	m.RunUntil("a stream", func() bool { return len(c.Requests) == 1 })
	if n := m.Consumer.Proc.Held(); n != 0 {
		t.Errorf("%d bytes are still counted", n)
	}
	proxytest.CheckStreamsSettled(m, c)
}

// TestRefusedHandoffMemory: what was kept for a request that waits to leave is given back as soon as it is too much, although the
// request before has no response yet.
func TestRefusedHandoffMemory(t *testing.T) {
	m, c, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "timeout: 1m", Limits: proxytest.SmallMessages})
	m.Apps[0].Delay = func() time.Duration { return 10 * time.Second }
	p := m.DialAndSend(proxytest.Egress, "GET / HTTP/1.1\r\nHost: compute\r\n\r\n"+
		"POST / HTTP/1.1\r\nHost: compute\r\nContent-Length: 200000\r\n\r\n"+strings.Repeat("x", 40_000))
	m.W.Run(time.Second)
	before := m.Consumer.Proc.Held()
	m.Clients.Do(func() { p.Conn.Write(make([]byte, 100_000)) })
	m.W.Run(time.Second)
	if held := m.Consumer.Proc.Held(); before < 40_000 || held > 10_000 || len(c.Requests) != 0 {
		t.Errorf("%d bytes are held before, %d behind what is too much; %d left", before, held, len(c.Requests))
	}
	if heard := m.RunUntilClosed(p); !strings.HasPrefix(heard, "HTTP/1.1 200 ") || !strings.Contains(heard, "message-too-large") {
		t.Errorf("received %q", heard)
	}
	proxytest.CheckStreamsSettled(m, c)
}

// newLongResponseMesh returns a mesh whose responses are too long for the buffers on their way.
func newLongResponseMesh(t *testing.T, limits string) (m *proxytest.Mesh, c *proxytest.Carrier) {
	m, c, _ = proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: limits})
	m.Apps[0].Body = func(*protocol.Request) []byte { return make([]byte, 2<<20) }
	return m, c
}

// TestHandoffWaitsForSlowReader checks that a connection leaves only after its client has read
// the responses before.
func TestHandoffWaitsForSlowReader(t *testing.T) {
	m, c := newLongResponseMesh(t, "")
	p := m.DialAndSend(proxytest.Egress, "")
	m.RunUntil("a connection", func() bool { return p.Conn != nil })
	m.W.Faults.PauseReading(p.Conn, true)
	l := handoffCases()[3]
	m.Clients.Do(func() { p.Conn.Write([]byte("GET /big HTTP/1.1\r\nHost: compute\r\n\r\n" + l.head + l.body)) })
	m.W.Run(time.Second)
	if n := len(c.Requests); n != 0 {
		t.Fatalf("%d requests handed off with output buffered", n)
	}
	m.W.Faults.PauseReading(p.Conn, false)
	m.RunUntil("a stream", func() bool { return len(c.Requests) == 1 })
	m.RunUntil("the response before it", func() bool { return len(p.Heard) > 2<<20 })
	l.check(t, c.Requests[0], proxytest.ReadArrived(t, c.Sockets[0]))
	proxytest.CheckStreamsSettled(m, c)
}

// TestHandoffWaitsForClosedConnection checks that a request which waits to leave ends with its
// connection.
func TestHandoffWaitsForClosedConnection(t *testing.T) {
	for name, end := range map[string]func(m *proxytest.Mesh, p *proxytest.Peer){
		"write timeout": func(m *proxytest.Mesh, _ *proxytest.Peer) { m.W.Run(5 * time.Second) },
		"reset":         func(m *proxytest.Mesh, p *proxytest.Peer) { m.W.Faults.Reset(p.Conn) },
	} {
		t.Run(name, func(t *testing.T) {
			m, c := newLongResponseMesh(t, "timeouts: {write: 4s}")
			p := m.DialAndSend(proxytest.Egress, "")
			m.RunUntil("a connection", func() bool { return p.Conn != nil })
			m.W.Faults.PauseReading(p.Conn, true)
			m.Clients.Do(func() {
				p.Conn.Write([]byte("GET /big HTTP/1.1\r\nHost: compute\r\n\r\n" + handoffCases()[0].head + "start"))
			})
			m.W.Run(time.Second)
			end(m, p)
			m.W.Faults.PauseReading(p.Conn, false)
			m.W.Run(time.Second)
			if len(c.Requests) != 0 {
				t.Errorf("%d requests handed off", len(c.Requests))
			}
			proxytest.CheckStreamsSettled(m, c)
		})
	}
}

// TestResponseWaitsForSlowReader: a response that is a stream leaves only after its client has read the response before, and
// ends if the client reads nothing for timeouts.write.
func TestResponseWaitsForSlowReader(t *testing.T) {
	for _, reads := range []bool{true, false} {
		m, c, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: "limits: {message: 1MiB}\ntimeouts: {write: 4s}"})
		const size = 620 << 10 // more than the kernels take, and so little that the next request begins
		responses := 0
		m.Apps[0].RespondWithFunc(func() string {
			if responses++; responses > 1 {
				return strings.Replace(proxytest.StreamResponses[0].Says, "100000", "2000000", 1)
			}
			return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("y", size))
		})
		p := m.DialAndSend(proxytest.Egress, "")
		m.RunUntil("a connection", func() bool { return p.Conn != nil })
		m.W.Faults.PauseReading(p.Conn, true)
		m.Clients.Do(func() { p.Conn.Write([]byte(proxytest.StreamRequest + proxytest.StreamRequest)) })
		m.RunUntil("the second request", func() bool { return responses == 2 })
		m.W.Run(time.Second)
		if len(c.Responses) != 0 {
			t.Fatal("the response left with output buffered")
		}
		before := m.Consumer.Proc.Held()
		m.Clients.Do(func() {
			p.Conn.Write([]byte(known + strings.Replace(known, "\r\n\r\n", "\r\nx: "+strings.Repeat("x", 40_000), 1)))
		})
		m.W.Run(100 * time.Millisecond)
		if held := m.Consumer.Proc.Held(); held != before {
			t.Errorf("%d bytes are held with requests behind the last response, %d without", held, before)
		}
		if !reads {
			m.W.Run(5 * time.Second)
		}
		m.W.Faults.PauseReading(p.Conn, false)
		m.W.Run(time.Second)
		if left := len(c.Responses); left == 1 != reads || len(p.Heard) < size && reads {
			t.Errorf("reads %t: %d responses left, %d bytes are read", reads, left, len(p.Heard))
		}
		proxytest.CheckStreamsSettled(m, c)
	}
}

// TestClientLeavesBeforeHandoff: nothing leaves the loop if the client resets its connection before the loop has looked.
func TestClientLeavesBeforeHandoff(t *testing.T) {
	for seed := range uint64(20) {
		m, c, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Seed: seed, Apps: 1, OneHop: true, Limits: proxytest.SmallMessages})
		m.Apps[0].Delay = func() time.Duration { return 50 * time.Millisecond }
		p := m.DialAndSend(proxytest.Egress, proxytest.StreamRequest+handoffCases()[0].head)
		m.W.Run(40 * time.Millisecond)
		m.W.Faults.Pause(m.Consumer.Loop, 50*time.Millisecond) // meanwhile the response to the first request arrives
		m.W.Run(20 * time.Millisecond)
		m.W.Faults.Reset(p.Conn)
		m.W.Run(time.Second)
		if len(c.Requests) != 0 {
			t.Errorf("seed %d: handed off", seed)
		}
		proxytest.CheckStreamsSettled(m, c)
	}
}
