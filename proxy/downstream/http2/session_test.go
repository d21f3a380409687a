package http2_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/sim"
)

const short = "timeouts: {header: 3s, body: 5s, idle: 20s, write: 4s}"

func code(a *reply) string { return string(protocol.Find(a.Headers, protocol.HeaderError)) }

// TestRequestsAtATime: the responses to the requests of one connection come when they are ready.
func TestRequestsAtATime(t *testing.T) {
	proxytest.EachTopology(t, proxytest.MeshOptions{}, func(t *testing.T, m *proxytest.Mesh) {
		c := dial(m, 0)
		c.awaitSettings()
		var all []*reply
		for i := range 100 {
			all = append(all, c.send(request("POST", "/", 10+i*700)), c.send(request("GET", "/", 0)))
		}
		c.await(all...)
		for i, a := range all {
			if a.Status != 200 || a.reset || len(a.body) == 0 {
				t.Fatalf("response %d: status %d %s, %d bytes, reset %t", i, a.Status, code(a), len(a.body), a.reset)
			}
		}
		m.Settled()
	})
}

// TestStreamLimit: requests above limits.http2.streams are refused before they are read.
func TestStreamLimit(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: "limits: {http2: {streams: 2}}"})
	m.Apps[0].Delay = func() time.Duration { return time.Second }
	c := dial(m, 0)
	// The client does not know the limit yet.
	all := []*reply{c.send(request("GET", "/", 0)), c.send(request("GET", "/", 0)), c.send(request("GET", "/", 0))}
	c.await(all...)
	if a := all[2]; !a.reset || a.code != http2.RefusedStream || all[0].Status != 200 || all[1].Status != 200 {
		t.Errorf("statuses %d %d, the third: reset %t with code %d", all[0].Status, all[1].Status, a.reset, a.code)
	}
	m.Settled()
}

// TestSlowHead: a header block that is not complete in timeouts.header ends the connection.
func TestSlowHead(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: short})
	c := dial(m, 0)
	m.W.Run(time.Second)
	began := m.W.Now()
	c.do(func() { c.raw = []byte{0, 0, 1, 1, 0, 0, 0, 0, 1, 0x82} }) // HEADERS without END_HEADERS
	m.RunUntil("the end of the connection", func() bool { return c.ended })
	if took := m.W.Now() - began; took < 3*time.Second || took > 5*time.Second || !c.goAway || c.why != http2.EnhanceYourCalm {
		t.Errorf("closed after %v, GOAWAY %t with %d", took, c.goAway, c.why)
	}
	if n := m.Consumer.Report().Stats.Errors.Of("header-timeout"); n != 1 {
		t.Errorf("%d are counted", n)
	}
	m.Settled()
}

// TestSlowGreeting: a client that does not complete the preface and its SETTINGS in timeouts.header
// loses the connection.
func TestSlowGreeting(t *testing.T) {
	for _, sent := range []string{
		http2.Preface[:4], http2.Preface[:len(http2.Preface)-1], http2.Preface,
		http2.Preface + "\x00\x00\x00", http2.Preface + "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00",
	} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: short})
		p := &proxytest.Peer{Says: []byte(sent)}
		m.Clients.Do(func() { m.Clients.Dial(proxytest.Egress, time.Second, p) })
		if strings.HasPrefix(sent, http2.Preface) {
			m.RunUntil("SETTINGS", func() bool { return len(p.Heard) > 0 })
			if m.W.Now() > 100*time.Millisecond {
				t.Errorf("%q: no SETTINGS before %v", sent, m.W.Now())
			}
		}
		m.RunUntil("the end of the connection", func() bool { return p.Ended })
		if took := m.W.Now(); took < 3*time.Second || took > 5*time.Second {
			t.Errorf("%q: closed after %v", sent, took)
		}
		m.Settled()
	}
}

// TestUnreadEnd: a connection that closes ends in timeouts.write although its client does not read how it does.
func TestUnreadEnd(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: short})
	c := dial(m, 0)
	m.W.Run(time.Second)
	m.W.Faults.PauseReading(c.conn, true)
	c.do(func() { c.raw = []byte{0, 0, 1, 1, 0, 0, 0, 0, 1, 0x82} }) // HEADERS without END_HEADERS
	m.W.Options.SendBuffer = 0
	m.W.Run(6 * time.Second) // timeouts.header, and a part of timeouts.write
	if n := m.Consumer.Report().Stats.Connections; n != 1 {
		t.Errorf("%d connections while the client may read", n)
	}
	m.W.Run(3 * time.Second)
	if n := m.Consumer.Report().Stats.Connections; n != 0 {
		t.Errorf("%d connections", n)
	}
	m.Settled()
}

// TestFaultEndsOnce: a connection that has ended for a fault does not time out as well, while its client reads nothing.
func TestFaultEndsOnce(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: short})
	c := dial(m, 0)
	m.W.Run(time.Second)
	m.W.Faults.PauseReading(c.conn, true)
	c.do(func() { c.raw = []byte{0, 0, 1, 1, 0, 0, 0, 0, 1, 0x82} }) // HEADERS without END_HEADERS
	m.W.Run(10 * time.Millisecond)
	c.do(func() { c.raw = []byte{0, 0, 1, 9, 0, 0, 0, 0, 3, 0x82} }) // CONTINUATION of another stream
	m.W.Options.SendBuffer = 0
	m.W.Run(10 * time.Second)
	s := m.Consumer.Report().Stats
	if n, slow := s.Errors.Of("http2-error"), s.Errors.Of("header-timeout"); n != 1 || slow != 0 {
		t.Errorf("%d faults and %d timeouts are counted", n, slow)
	}
	m.Settled()
}

// TestTimeoutsOfOthers: each call of a connection ends in its own time, whatever the calls before it wait for.
func TestTimeoutsOfOthers(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: "timeouts: {body: 9s, write: 4s}", Service: "timeout: 1m"})
	m.Apps[0].Delay = func() time.Duration { return time.Hour }
	c := dial(m, 1000)
	c.deaf = true
	served := c.send(request("GET", "/", 0))
	m.W.Run(100 * time.Millisecond)
	m.Apps[0].Delay = func() time.Duration { return time.Millisecond }
	m.Apps[0].Body = func(*protocol.Request) []byte { return make([]byte, 5000) }
	began := m.W.Now()
	incomplete, unread := c.begin(request("POST", "/", 0)), c.send(request("GET", "/", 0))
	late := c.begin(request("POST", "/", 0))
	m.RunUntil("a reset", func() bool { return unread.reset })
	if took := m.W.Now() - began; took < 4*time.Second || took > 8500*time.Millisecond || unread.code != http2.Cancel || incomplete.done {
		t.Errorf("reset with %d after %v", unread.code, took)
	}
	c.await(incomplete, late)
	if took := (m.W.Now() - began).Round(time.Second); took != 9*time.Second || incomplete.Status != 408 || late.Status != 408 || served.done {
		t.Errorf("%d and %d after %v", incomplete.Status, late.Status, took)
	}
	c.do(c.conn.Close)
}

// TestInteractiveBesideUnread: a gRPC call whose client pauses leaves the loop soon, whatever the calls before it wait for.
func TestInteractiveBesideUnread(t *testing.T) {
	m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
	m.Apps[0].Body = func(*protocol.Request) []byte { return make([]byte, 5000) }
	c := dial(m, 1000)
	c.deaf = true
	unread := c.send(request("GET", "/", 0))
	m.RunUntil("a part of a response", func() bool { return len(unread.body) == 1000 })
	for n := range 3 {
		m.W.Run(time.Second)
		began := m.W.Now()
		c.begin(request("POST", "/", 0, "content-type: application/grpc"))
		m.RunUntil("a stream", func() bool { return len(streams.Requests) == n+1 })
		if took := m.W.Now() - began; took > race.StreamAfter/2 {
			t.Errorf("call %d has left after %v", n, took)
		}
	}
	c.do(c.conn.Close)
	proxytest.CheckStreamsSettled(m, streams)
}

// TestSlowBody: a body that is not complete in timeouts.body is refused, and the connection goes on.
func TestSlowBody(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: short})
	c := dial(m, 0)
	began := m.W.Now()
	a := c.begin(request("POST", "/", 0))
	c.await(a)
	if took := m.W.Now() - began; a.Status != 408 || code(a) != "body-timeout" || took < 5*time.Second || took > 6*time.Second {
		t.Errorf("%d %s after %v", a.Status, code(a), took)
	}
	next := c.send(request("GET", "/", 0))
	if c.await(next); next.Status != 200 {
		t.Errorf("status %d afterwards", next.Status)
	}
	m.Settled()
}

// TestBusyLoop: a request whose rest has come while the loop was busy becomes no stream. One whose rest does not come becomes a stream.
func TestBusyLoop(t *testing.T) {
	m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1})
	c := dial(m, 0)
	m.W.Options.Cut = 0
	for range 10 { // a busy loop has input and timers at once, in any order
		a := c.begin(request("POST", "/", 0, "content-type: application/grpc"))
		m.W.Run(2 * time.Millisecond)
		m.W.Faults.Pause(m.Consumer.Loop, 50*time.Millisecond)
		c.do(func() { c.codec.Finish(a.stream, nil) })
		m.RunUntil("a response, or a stream", func() bool { return a.done || len(streams.Requests) > 0 })
		if a.Status != 200 {
			t.Fatalf("status %d %s, %d streams", a.Status, code(a), len(streams.Requests))
		}
	}
	c.begin(request("POST", "/", 0, "content-type: application/grpc")) // whose rest does not come
	m.W.Run(2 * time.Millisecond)
	m.W.Faults.Pause(m.Consumer.Loop, 50*time.Millisecond)
	m.RunUntil("a stream", func() bool { return len(streams.Requests) == 1 })
	proxytest.CheckStreamsSettled(m, streams)
}

// TestIdle: an idle connection ends in order after timeouts.idle. It is not idle while it waits for a response.
func TestIdle(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: short, Service: "timeout: 1m"})
	m.Apps[0].Delay = func() time.Duration { return 45 * time.Second }
	c := dial(m, 0)
	m.W.Run(10 * time.Second)
	a := c.send(request("GET", "/", 0))
	if c.await(a); a.Status != 200 || c.goAway {
		t.Errorf("status %d %s, GOAWAY %t", a.Status, code(a), c.goAway)
	}
	began := m.W.Now()
	m.RunUntil("the end of the connection", func() bool { return c.ended })
	if took := m.W.Now() - began; took < 19*time.Second || took > 23*time.Second || !c.goAway || c.why != http2.NoError {
		t.Errorf("closed after %v, GOAWAY %t with %d", took, c.goAway, c.why)
	}
	m.Settled()
}

// TestVanishedClient: the connection of a client that does not respond to PING closes, also
// with a request in flight. One that does gets its response.
func TestVanishedClient(t *testing.T) {
	for _, frozen := range []bool{false, true} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Service: "timeout: 1h"})
		m.Apps[0].Delay = func() time.Duration { return 10 * time.Minute }
		c := dial(m, 0)
		a := c.send(request("POST", "/", 10))
		m.W.Run(time.Second)
		if frozen {
			m.W.Faults.Pause(m.Clients, time.Hour)
			m.W.Run(150 * time.Second)
			if n := m.Consumer.Report().Stats.Connections; n != 0 {
				t.Errorf("%d connections", n)
			}
			continue
		}
		if m.W.Run(10 * time.Minute); a.Status != 200 {
			t.Errorf("status %d", a.Status)
		}
		m.Settled()
	}
}

// TestSlowReader: a response that the client does not let through for timeouts.write is reset. Others
// of the connection pass.
func TestSlowReader(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: short})
	m.Apps[0].Body = func(*protocol.Request) []byte { return make([]byte, 100<<10) }
	c := dial(m, 1000)
	c.deaf = true
	a := c.send(request("GET", "/", 0))
	turns := 0
	m.W.Run(100 * time.Millisecond)
	m.W.OnTurn(func(l *sim.Loop, _, _ int) {
		if l == m.Consumer.Loop {
			turns++
		}
	})
	if m.W.Run(2 * time.Second); turns > 10 {
		t.Errorf("%d turns of the loop while the client reads nothing", turns)
	}
	b := c.send(request("HEAD", "/", 0))
	if c.await(b); b.Status != 200 {
		t.Errorf("status %d of another response", b.Status)
	}
	m.RunUntil("a reset", func() bool { return a.reset || a.done })
	if !a.reset || a.code != http2.Cancel || m.W.Now() < 4*time.Second || len(a.body) > 1000 {
		t.Errorf("reset %t with %d at %v, %d bytes", a.reset, a.code, m.W.Now(), len(a.body))
	}
	m.Settled()
}

// TestSteadyReaderOfStream: the last bytes of a streamed response may take longer than timeouts.write,
// as long as the client lets some through.
func TestSteadyReaderOfStream(t *testing.T) {
	m, consumer, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Limits: short})
	c := dial(m, 1000)
	c.deaf = true
	a := c.begin(request("POST", "/", 0))
	m.RunUntil("a stream", func() bool { return len(consumer.Sockets) == 1 })
	const length = 50_000
	m.Consumer.Loop.Do(func() {
		s := consumer.Sockets[0]
		_, _ = fmt.Fprintf(s, "HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n", length)
		_, _ = s.Write(make([]byte, length))
		_ = s.Close()
	})
	m.RunUntil("the response", func() bool {
		m.W.Run(500 * time.Millisecond)
		c.do(func() {
			if a.stream.ID() != 0 {
				c.codec.Consumed(a.stream, 1000)
			}
		})
		return a.done || a.reset
	})
	if !a.done || len(a.body) != length {
		t.Errorf("reset %t with %d, %d bytes", a.reset, a.code, len(a.body))
	}
}

// TestRequestsPerConnection: the client learns that the last request of limits.requests is the last.
func TestRequestsPerConnection(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: "limits: {requests: 3}"})
	c := dial(m, 0)
	for i := range 3 {
		a := c.send(request("GET", "/", 0))
		if c.await(a); a.Status != 200 {
			t.Errorf("request %d: status %d", i, a.Status)
		}
	}
	m.RunUntil("the end of the connection", func() bool { return c.ended })
	if !c.goAway {
		t.Error("no GOAWAY")
	}
	m.Settled()
}

// TestDrain: requests in flight, and one that is on its way, get their responses.
func TestDrain(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	m.Apps[0].Delay = func() time.Duration { return 5 * time.Second }
	c := dial(m, 0)
	a := c.send(request("GET", "/", 0))
	m.W.Run(100 * time.Millisecond)
	m.Consumer.Proc.Drain()
	b := c.send(request("GET", "/", 0))
	c.await(a, b)
	if a.Status != 200 || b.Status != 200 || !c.goAway {
		t.Errorf("%d %s, %d %s, GOAWAY %t", a.Status, code(a), b.Status, code(b), c.goAway)
	}
	m.RunUntil("the end of the connection", func() bool { return c.ended })
	m.Settled()
}

// TestDrainOfSilentClient: a connection ends although its client does not say that it knows that the connection drains.
func TestDrainOfSilentClient(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	c := dial(m, 0)
	m.W.Run(100 * time.Millisecond)
	m.W.Faults.PauseReading(c.conn, true)
	m.Consumer.Proc.Drain()
	m.W.Run(500 * time.Millisecond)
	if n := m.Consumer.Report().Stats.Connections; n != 1 {
		t.Errorf("%d connections while a request may be on its way", n)
	}
	m.W.Run(3 * time.Second)
	if n := m.Consumer.Report().Stats.Connections; n != 0 {
		t.Errorf("%d connections", n)
	}
	m.Settled()
}

// TestDrainedByReset: a draining connection ends once its client has reset the last request.
func TestDrainedByReset(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	m.Apps[0].Delay = func() time.Duration { return time.Minute }
	c := dial(m, 0)
	a := c.send(request("GET", "/", 0))
	m.W.Run(100 * time.Millisecond)
	m.Consumer.Proc.Drain()
	m.W.Run(2 * time.Second)
	if !c.goAway || c.ended {
		t.Fatalf("GOAWAY %t, the connection ended: %t", c.goAway, c.ended)
	}
	c.do(func() { c.codec.Reset(a.stream, http2.Cancel) })
	if m.W.Run(100 * time.Millisecond); !c.ended {
		t.Error("the connection stays open")
	}
	m.Settled()
}

// TestStreamWhileDraining: a request that pauses leaves the loop also while the process drains, since a stream has timeouts of its own.
func TestStreamWhileDraining(t *testing.T) {
	m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1})
	c := dial(m, 0)
	a := c.begin(request("POST", "/", 0))
	m.W.Run(10 * time.Millisecond)
	m.Consumer.Proc.Drain()
	m.W.Run(500 * time.Millisecond)
	if len(streams.Requests) != 1 || a.done {
		t.Errorf("%d streams, %d %s", len(streams.Requests), a.Status, code(a))
	}
	proxytest.CheckStreamsSettled(m, streams)
}

// TestSparsePings: PINGs are no flood if their client takes its time.
func TestSparsePings(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	c := dial(m, 0)
	for range 6 {
		c.do(func() {
			c.raw = bytes.Repeat([]byte{0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}, 100) // half a flood
		})
		m.W.Run(time.Minute)
	}
	a := c.send(request("GET", "/", 0))
	if c.await(a); a.Status != 200 || c.goAway {
		t.Errorf("status %d, GOAWAY %t", a.Status, c.goAway)
	}
	m.Settled()
}

// TestCancel: requests that the client resets in any state leave nothing.
func TestCancel(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	c := dial(m, 0)
	m.Apps[0].Delay = func() time.Duration { return time.Second }
	for i := range 20 {
		incomplete, whole := c.begin(request("POST", "/", 0)), c.send(request("POST", "/", 1000))
		m.W.Run(time.Duration(i) * time.Millisecond / 4)
		c.do(func() {
			for _, a := range [][]*reply{{incomplete, whole}, {whole, incomplete}}[i%2] {
				c.codec.Reset(a.stream, http2.Cancel)
			}
		})
		if i >= 10 || i%2 == 1 {
			m.W.Run(2 * time.Second) // the application has responded
		}
	}
	a := c.send(request("GET", "/", 0))
	if c.await(a); a.Status != 200 {
		t.Errorf("status %d afterwards", a.Status)
	}
	m.Settled()
}

// TestLostConnection: requests in any state leave nothing when their connection closes.
func TestLostConnection(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	m.Apps[0].Delay = func() time.Duration { return time.Second }
	for i := range 20 {
		c := dial(m, 0)
		c.begin(request("POST", "/", 0))
		c.send(request("POST", "/", 200<<10))
		m.W.Run(time.Duration(i) * time.Millisecond / 4)
		c.do(c.conn.Close)
	}
	m.Settled()
}

// TestFailures: an own response is that of HTTP/1.1, or a gRPC status.
func TestFailures(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Match: "match: {path: /served}"})
	c := dial(m, 0)
	plain, grpc := c.send(request("GET", "/other", 0)), c.send(request("POST", "/other", 5, "content-type: application/grpc"))
	connect := c.send(&protocol.Request{Method: []byte("CONNECT"), Authority: []byte("a:1")})
	c.await(plain, grpc, connect)
	if plain.Status != 404 || code(plain) != "no-route" || len(plain.body) == 0 {
		t.Errorf("%d %s %q", plain.Status, code(plain), plain.body)
	}
	if status := protocol.Find(grpc.Headers, "grpc-status"); grpc.Status != 200 || code(grpc) != "no-route" || string(status) != "12" || len(grpc.body) != 0 {
		t.Errorf("gRPC: %d, status %s, %s %q", grpc.Status, status, code(grpc), grpc.body)
	}
	if connect.Status != 501 {
		t.Errorf("CONNECT: %d %s", connect.Status, code(connect))
	}
	m.Settled()
}

// TestFailureOfStream: a failure that is an ordinary response becomes a gRPC status. One that is a status
// already, of a sidecar that the endpoint has called, stays as it is.
func TestFailureOfStream(t *testing.T) {
	for _, is := range []struct{ response, status, message string }{
		{"503 Service Unavailable\r\nx-remora-error: upstream-connect\r\ncontent-length: 5\r\n\r\nhello", "14", "upstream-connect"},
		{"200 OK\r\ncontent-type: application/grpc\r\ngrpc-status: 8\r\ngrpc-message: why\r\nx-remora-error: overloaded\r\ncontent-length: 0\r\n\r\n", "8", "why"},
		{"200 OK\r\ncontent-type: application/grpc\r\ngrpc-status: 14\r\ngrpc-message: why\r\nx-remora-error: upstream-connect\r\ncontent-length: 0\r\n\r\n", "14", "why"},
	} {
		m, consumer, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1})
		c := dial(m, 0)
		a := c.begin(request("POST", "/", 0, "content-type: application/grpc"))
		m.RunUntil("a stream", func() bool { return len(consumer.Sockets) == 1 })
		m.Consumer.Loops[0].Do(func() {
			_, _ = consumer.Sockets[0].Write([]byte("HTTP/1.1 " + is.response))
			_ = consumer.Sockets[0].Close()
		})
		c.await(a)
		status, message := protocol.Find(a.Headers, "grpc-status"), protocol.Find(a.Headers, "grpc-message")
		if string(status) != is.status || string(message) != is.message || a.Status != 200 || len(a.body) != 0 {
			t.Errorf("%q became %d, status %s, message %q, body %q", is.response, a.Status, status, message, a.body)
		}
		proxytest.CheckStreamsSettled(m, consumer)
		c.checkIdle()
	}
}

// TestIdleAfterStream: a connection is idle once the goroutine of its last stream has ended, which may be
// after the client has its response.
func TestIdleAfterStream(t *testing.T) {
	m, consumer, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Limits: short})
	c := dial(m, 0)
	a := c.begin(request("POST", "/", 0))
	m.RunUntil("a stream", func() bool { return len(consumer.Sockets) == 1 })
	onLoop := m.Consumer.Loop.Do
	onLoop(func() { _, _ = consumer.Sockets[0].Write([]byte("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")) })
	c.await(a)
	m.W.Run(time.Second)
	onLoop(func() { _ = consumer.Sockets[0].Close() })
	m.RunUntil("the end of the connection", func() bool { return c.ended })
	proxytest.CheckStreamsSettled(m, consumer)
}

// TestTablesAreBounded: the tables of HPACK count, and idle connections close when tables take half of
// limits.buffered.
func TestTablesAreBounded(t *testing.T) {
	const part = 512 << 10 // of proxytest.SmallBudget
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: proxytest.SmallBudget})
	var all []*client
	filling := request("GET", "/", 0)
	for i := range 30 {
		filling.Headers = append(filling.Headers, protocol.Header{Name: fmt.Appendf(nil, "x-%d", i), Value: bytes.Repeat([]byte("v"), 80)})
	}
	incomplete := make(map[*client]*reply)
	most := int64(0) // before a connection closes
	for i := range 200 {
		c := dial(m, 0)
		all = append(all, c)
		for range 2 { // what repeats enters the tables
			a := c.send(filling)
			if c.await(a); a.Status != 200 {
				t.Fatalf("status %d %s", a.Status, code(a))
			}
		}
		if i%10 == 0 {
			incomplete[c] = c.begin(request("POST", "/", 0))
		}
		if m.Consumer.ShedConnections() == 0 {
			most = max(most, m.Consumer.Proc.Interned())
		}
	}
	if most < part/8*7 {
		t.Errorf("connections close with %d bytes of tables, of %d", most, part)
	}
	if n := m.Consumer.Proc.Interned(); n > part || n < part/2 {
		t.Errorf("%d bytes of tables, at most %d", n, part)
	}
	closed := 0
	for _, c := range all {
		switch a := incomplete[c]; {
		case c.ended:
			if closed++; !c.goAway || a != nil {
				t.Errorf("a connection closed: with GOAWAY %t, with a request %t", c.goAway, a != nil)
			}
		case a != nil:
			c.end(a)
			if c.await(a); a.Status != 200 {
				t.Errorf("%d %s on a connection with a request", a.Status, code(a))
			}
		}
	}
	if closed == 0 {
		t.Error("no connection has closed")
	}
	m.Settled()
}

// TestTablesOfRequests: no connection with a request closes because of its tables.
func TestTablesOfRequests(t *testing.T) {
	const (
		part = 512 << 10     // what tables may take of proxytest.SmallBudget
		more = part + 70<<10 // so the loop has looked for idle connections twice: it does again after 64 KiB more
	)
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: proxytest.SmallBudget})
	filling := request("GET", "/", 0)
	for i := range 30 {
		filling.Headers = append(filling.Headers, protocol.Header{Name: fmt.Appendf(nil, "x-%d", i), Value: bytes.Repeat([]byte("v"), 80)})
	}
	var all []*client
	for m.Consumer.Proc.Interned() < more {
		c := dial(m, 0)
		all = append(all, c)
		c.begin(request("POST", "/", 0))
		c.send(filling)
		c.send(filling)
		m.W.Run(50 * time.Millisecond)
		if len(all) > more/(2<<10) { // each has more than 2 KiB of tables
			t.Fatalf("%d bytes of tables", m.Consumer.Proc.Interned())
		}
	}
	for i, c := range all {
		if c.ended {
			t.Errorf("connection %d has closed", i)
		}
		c.do(c.conn.Close)
	}
	m.W.Run(100 * time.Millisecond)
	if n := m.Consumer.Proc.Interned(); n != 0 {
		t.Errorf("%d bytes of tables are left", n)
	}
	m.Settled()
}

// TestAcceptedWhileDraining: a connection that was accepted just before the listener has closed gets a response, and learns
// that it is the last.
func TestAcceptedWhileDraining(t *testing.T) {
	for name, end := range map[string]func(m *proxytest.Mesh){
		"drained": func(m *proxytest.Mesh) { m.Consumer.Proc.Drain() },
		"retired": func(m *proxytest.Mesh) { m.Consumer.Proc.Retire() },
	} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
		end(m)
		m.W.Run(10 * time.Millisecond)
		c := dial(m, 0)
		a := c.send(request("GET", "/", 0))
		if c.await(a); a.Status != 200 {
			t.Errorf("%s: status %d", name, a.Status)
		}
		m.RunUntil("the end of the connection", func() bool { return c.ended })
		if !c.goAway {
			t.Errorf("%s: no GOAWAY", name)
		}
		m.Settled()
	}
}

// TestDrainAgain: a connection that drains, when its listener closes or because it is old, ends behind the requests in flight
// whatever else makes it end.
func TestDrainAgain(t *testing.T) {
	for name, again := range map[string]func(m *proxytest.Mesh, c *client){
		"not":       func(*proxytest.Mesh, *client) {},
		"drained":   func(m *proxytest.Mesh, _ *client) { m.Consumer.Proc.Drain() },
		"untrusted": func(m *proxytest.Mesh, c *client) { m.W.Faults.Distrust(c.conn) },
		"ended":     func(m *proxytest.Mesh, c *client) { m.W.Faults.HalfClose(c.conn) },
	} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
		m.Apps[0].Delay = func() time.Duration { return 3 * time.Second }
		c := dial(m, 0)
		a := c.send(request("GET", "/", 0))
		m.W.Run(100 * time.Millisecond)
		m.Consumer.Proc.Retire()
		m.W.Run(100 * time.Millisecond)
		if !c.goAway {
			t.Errorf("%s: no GOAWAY", name)
		}
		again(m, c)
		began := m.W.Now()
		m.RunUntil("the end of the connection", func() bool { return c.ended })
		if took := (m.W.Now() - began).Round(time.Second); a.Status != 200 || took != 3*time.Second {
			t.Errorf("%s: status %d, ended after %v", name, a.Status, took)
		}
		m.Settled()
	}
}

// TestUnreadOutput: responses wait while the client reads nothing, and the loop holds no copy of them. The client gets all when it
// reads again.
func TestUnreadOutput(t *testing.T) {
	const size, requests = 1 << 20, 8
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
	m.Apps[0].Body = func(*protocol.Request) []byte { return make([]byte, size) }
	c := dial(m, 16<<20)
	c.await(c.send(request("GET", "/", 0)))
	m.W.Faults.PauseReading(c.conn, true)
	var all []*reply
	for range requests {
		all = append(all, c.send(request("GET", "/", 0)))
	}
	m.W.Run(time.Second)
	if held := m.Consumer.Proc.Held(); held > (requests+2)*size {
		t.Errorf("%d bytes are held for %d responses of %d bytes", held, requests, size)
	}
	other, before := dial(m, 16<<20), m.Consumer.Proc.Held()
	m.W.Faults.PauseReading(other.conn, true)
	other.send(request("GET", "/", 0))
	m.W.Run(time.Second)
	m.W.Faults.Reset(other.conn)
	m.W.Run(10 * time.Millisecond)
	if held := m.Consumer.Proc.Held(); held > before {
		t.Errorf("%d bytes are held behind the end of a connection, %d before", held, before)
	}
	m.W.Faults.PauseReading(c.conn, false)
	began := m.W.Now()
	c.await(all...)
	for i, a := range all {
		if a.Status != 200 || len(a.body) != size {
			t.Errorf("response %d: %d with %d bytes", i, a.Status, len(a.body))
		}
	}
	if took := m.W.Now() - began; took > time.Second { // it does not wait for a timeout
		t.Errorf("the responses took %v", took)
	}
	m.Settled()
	if n := m.Consumer.WriteTimeouts(); n != 0 {
		t.Errorf("%d write timeouts", n)
	}
}

// TestLargeHead: a head that exceeds the limits is refused, counts as a request, and leaves the connection as it is.
func TestLargeHead(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Limits: "limits: {header: 4KiB, requests: 3}"})
	c := dial(m, 0)
	for i, status := range []int{200, 431, 200} {
		r := request("GET", "/", 0)
		if status == 431 {
			r.Headers = append(r.Headers, field("x-long", string(bytes.Repeat([]byte("v"), 5<<10))))
		}
		a := c.send(r)
		if c.await(a); a.Status != status || status == 431 && code(a) != "header-too-large" {
			t.Errorf("request %d: %d %s", i, a.Status, code(a))
		}
	}
	if n := m.Consumer.Report().Stats.Errors.Of("header-too-large"); n != 1 {
		t.Errorf("%d are counted", n)
	}
	m.RunUntil("the end of the connection", func() bool { return c.ended })
	m.Settled()
}

// TestConnectionLeavesNoTimer: no timer outlives its connection, whatever that waits for when its client leaves.
func TestConnectionLeavesNoTimer(t *testing.T) {
	for name, begin := range map[string]func(m *proxytest.Mesh, c *client){
		"nothing": func(*proxytest.Mesh, *client) {},
		"a body":  func(_ *proxytest.Mesh, c *client) { c.begin(request("POST", "/", 0)) },
		"a head":  func(_ *proxytest.Mesh, c *client) { c.do(func() { c.raw = []byte{0, 0, 1, 1, 0, 0, 0, 0, 1, 0x82} }) },
		"its end": func(m *proxytest.Mesh, c *client) {
			c.begin(request("POST", "/", 0))
			m.Consumer.Proc.Drain()
		},
	} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true})
		c := dial(m, 0)
		c.do(c.conn.Close)
		m.W.Run(100 * time.Millisecond)
		before := fmt.Sprint(m.W.Leftovers()) // the timer of idle sessions stays armed
		c = dial(m, 0)
		m.W.Run(100 * time.Millisecond)
		begin(m, c)
		m.W.Run(500 * time.Millisecond)
		c.do(c.conn.Close)
		m.W.Run(100 * time.Millisecond)
		if after := fmt.Sprint(m.W.Leftovers()); after != before {
			t.Errorf("waits for %s: %s, behind an earlier connection %s", name, after, before)
		}
	}
}
