package proxy_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy"
)

// A body that lasts until the connection closes is cut off, not complete, when
// the connection is reset.
func TestResetDoesNotCompleteABody(t *testing.T) {
	eachTopology(t, meshOptions{apps: 1}, func(t *testing.T, m *mesh) {
		m.apps[0].stop()
		m.w.Listen(m.apps[0].addr, m.w.Loop("10.0.1.1-raw"), func() proxy.Stream {
			p := &peer{}
			p.reply = func([]byte) []byte {
				m.w.At(m.w.Now()+time.Millisecond, func() { m.w.Reset(p.conn) })
				return []byte("HTTP/1.1 200 OK\r\n\r\nhalf of")
			}
			return p
		})
		c := m.get("/")
		m.do(c)
		m.finish(c)
		if c.status != 502 || c.code != "upstream-reset" {
			t.Errorf("status %d %s with body %q, want 502 upstream-reset", c.status, c.code, c.body)
		}
		m.settled()
	})
}

// A hedge that is refused says nothing of the primary: what became of that one
// decides on a retry.
func TestRefusedHedgeDoesNotForbidTheRetry(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 3, provider: ", max_concurrency: 1",
		service: `, idempotent: true, retry: {on: [connect, reset]}, hedge: {mode: on, delay: 5ms}`})
	for _, a := range m.apps {
		a.delay = func() time.Duration { return 20 * time.Millisecond }
	}
	var busy []*call
	for range 3 { // one at each application: hedges find no slot
		c := m.post(10)
		m.do(c)
		busy = append(busy, c)
	}
	// The hedges leave after 5 ms; just then the providers' links break, one
	// way of a primary to fail before its hedge is refused.
	m.w.Run(5*time.Millisecond + 600*time.Microsecond)
	m.w.ResetAll(m.consumer.host, m.nodes[1].host)
	m.finish(busy...)
	m.ok(busy...)
	m.settled()
}

// An idle link closes without a request being lost that is under way just then,
// be it one that can't be sent twice.
func TestIdleLinkLosesNothing(t *testing.T) {
	for after := time.Duration(0); after < 6*time.Millisecond; after += 40 * time.Microsecond {
		m := newMesh(t, meshOptions{apps: 1, seed: uint64(after), service: ", retry: {on: [connect]}"})
		m.warm(1)
		cl := m.dial(egress)
		m.w.Run(70*time.Second + after - m.w.Now()) // the seventh beat of either end
		c := m.post(10)
		m.clients.Do(func() { cl.calls = []*call{c}; cl.send() })
		m.finish(c)
		m.ok(c)
		if t.Failed() {
			t.Fatalf("with a request %v after seven beats", after)
		}
	}
}

// A link that carries a long message is not idle, though nothing is complete.
func TestSlowMessageKeepsTheLink(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, service: ", timeout: 10m", provider: ", timeout: 10m", bandwidth: 40_000,
		limits: "timeouts: {body: 10m}"})
	m.apps[0].body = func(req *protocol.Request) []byte { return bytes.Clone(req.Body) }
	c := m.post(maxMessage)
	m.do(c)
	if !m.w.RunUntil(func() bool { return c.done }, 20*time.Minute) {
		t.Fatal("no answer")
	}
	m.ok(c)
	m.settled()
}

// Answers to pipelined requests wait for a client that reads slowly.
func TestPipelinedAnswersWaitForTheReader(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1})
	m.apps[0].body = func(*protocol.Request) []byte { return bytes.Repeat([]byte{'y'}, 2<<20) }
	cl := m.dial(egress)
	var all []byte
	for range 8 {
		c := m.get("/")
		all = append(all, c.raw...)
		c.raw = nil
		cl.calls = append(cl.calls, c)
	}
	calls := cl.calls
	calls[0].raw = all
	m.w.Run(2 * time.Millisecond)
	m.w.Hold(cl.conn, true)
	m.w.Run(10 * time.Second)
	m.w.Hold(cl.conn, false)
	m.finish(calls...)
	m.ok(calls...)
	m.settled()
}

// What waits on a connection behind its first request counts as buffered.
func TestPipelinedBodiesCountAsBuffered(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, direct: true, limits: "limits: {message: 1MiB, buffered: 2MiB}"})
	m.apps[0].delay = func() time.Duration { return 200 * time.Millisecond }
	cl := m.dial(egress)
	cl.calls = []*call{m.get("/"), m.post(900_000), m.post(900_000), m.post(900_000)}
	calls := cl.calls
	for _, c := range calls[1:] {
		calls[0].raw = append(calls[0].raw, c.raw...)
		c.raw = nil
	}
	m.w.Run(100 * time.Millisecond)
	if n := m.consumer.proc.Held(); n < 2_700_000 {
		t.Errorf("%d bytes counted with 2.7 MB in memory", n)
	}
	m.finish(calls...)
	m.ok(calls...)
	m.settled()
}

// An answer counts while it is received, not only once it is complete.
func TestPartialAnswersCountAsBuffered(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1, direct: true})
	m.apps[0].stop()
	m.w.Listen(m.apps[0].addr, m.w.Loop("10.0.1.1-raw"), func() proxy.Stream {
		return &peer{reply: func([]byte) []byte {
			return append([]byte("HTTP/1.1 200 OK\r\nContent-Length: 900001\r\n\r\n"), make([]byte, 900_000)...)
		}}
	})
	c := m.get("/")
	m.do(c)
	m.w.Run(100 * time.Millisecond)
	if n := m.consumer.proc.Held(); n < 900_000 {
		t.Errorf("%d bytes counted with 0.9 MB in memory", n)
	}
	m.finish(c)
	m.settled()
}

// A connection that a listener had accepted just before a drain is not kept for
// more than the request that it was opened for.
func TestConnectionAcceptedDuringADrainCloses(t *testing.T) {
	m := newMesh(t, meshOptions{apps: 1})
	m.consumer.proc.Drain()
	m.w.Run(time.Millisecond)
	c := m.post(10)
	cl := m.do(c)
	m.finish(c)
	m.ok(c)
	if !m.w.RunUntil(func() bool { return cl.ended }, time.Second) {
		t.Error("the connection stays open")
	}
}

// An application that finishes what was withdrawn from it has answered: that it
// was slow is known from then on.
func TestFinishedLoserCountsAsAnAnswer(t *testing.T) {
	eachTopology(t, meshOptions{apps: 2, service: hedgeOn}, func(t *testing.T, m *mesh) {
		m.warm(20)
		m.apps[0].frozen = m.w.Now() + 80*time.Millisecond
		calls := []*call{m.post(10), m.post(10)}
		m.do(calls[0])
		m.do(calls[1])
		m.finish(calls...)
		m.ok(calls...)
		m.settled()
		var report proxy.WorkerReport
		m.consumer.loop.Do(func() { report = m.consumer.proc.Workers()[0].Report() })
		for _, e := range report.Services[0].Endpoints {
			if e.Addr == m.endpoint(0).Addr && e.Latency < 4*time.Millisecond {
				t.Errorf("the latency of the frozen one is %v, want what its late answer makes of it", e.Latency)
			}
		}
	})
}

// One empty line before a request is ignored and a second one refused, however
// they arrive (RFC 9112 section 2.2); with no request behind it the connection
// is idle, and closes as such.
func TestEmptyLines(t *testing.T) {
	get := "GET / HTTP/1.1\r\nHost: compute\r\n\r\n"
	for _, c := range []struct {
		says []string
		want string // of the answers
		ends time.Duration
	}{
		{[]string{get, get}, "200 200", 5 * time.Minute},
		{[]string{"\r\n" + get}, "200", 5 * time.Minute},
		{[]string{"\r\n", get}, "200", 5 * time.Minute},
		{[]string{"\r", "\n", get, "\r", "\n"}, "200", 5 * time.Minute},
		{[]string{get + "\r\n"}, "200", 5 * time.Minute},
		{[]string{get, "\r\n" + get}, "200 200", 5 * time.Minute},
		{[]string{"\r\n\r\n" + get}, "400", time.Second},
		{[]string{"\r\n", "\r\n", get}, "400", time.Second},
		{[]string{get, "\r\n", "\r", "\n"}, "200 400", time.Second},
	} {
		m := newMesh(t, meshOptions{apps: 1})
		p := m.speak(egress, "")
		for _, b := range c.says {
			m.w.Run(100 * time.Millisecond)
			m.clients.Do(func() { p.conn.Write([]byte(b)) })
		}
		m.w.Run(c.ends - time.Second)
		if p.ended && c.ends > time.Second {
			t.Errorf("%q: closed before it was idle for long", c.says)
		}
		m.w.RunUntil(func() bool { return p.ended }, 10*time.Second)
		var got []string
		for _, answer := range strings.Split(string(p.heard), "HTTP/1.1 ")[1:] {
			got = append(got, answer[:3])
		}
		if strings.Join(got, " ") != c.want || !p.ended {
			t.Errorf("%q: answered %v, want %s; closed %t", c.says, got, c.want, p.ended)
		}
		m.settled()
	}
}
