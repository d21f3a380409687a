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

// script has application i say says to each request.
func (m *mesh) script(i int, says string) **peer {
	return m.scripted(i, func() string { return says })
}

// scripted has application i say what says returns to each request, and returns
// its latest connection.
func (m *mesh) scripted(i int, says func() string) **peer {
	a := m.apps[i]
	a.stop()
	latest := new(*peer)
	a.stop = m.w.Listen(a.addr, a.loop, func() proxy.Stream {
		*latest = &peer{reply: func(heard []byte) []byte {
			if !bytes.HasSuffix(heard, []byte("\r\n\r\n")) {
				return nil
			}
			return []byte(says())
		}}
		return *latest
	})
	return latest
}

const getStream = "GET /s HTTP/1.1\r\nHost: compute\r\n\r\n"

// answers that are streams, as far as the application sends them.
var lastingAnswers = []struct {
	name, says string
	framing    string // of the head that the client gets
	here       string // of the body
}{
	{"long", "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nfirst", "Content-Length: 100000\r\n", "first"},
	{"events", "HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n",
		"Transfer-Encoding: chunked\r\n", "first"},
	{"events until the close", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nfirst", "Transfer-Encoding: chunked\r\n", "first"},
	{"documents", "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n",
		"Transfer-Encoding: chunked\r\n", ""},
	{"parts", "HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace;boundary=b\r\n\r\n", "Transfer-Encoding: chunked\r\n", ""},
	{"pauses", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n", "Transfer-Encoding: chunked\r\n", "first"},
	{"pauses until the close", "HTTP/1.1 200 OK\r\n\r\nfirst", "Transfer-Encoding: chunked\r\n", "first"},
	{"long and whole", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10001\r\n" + strings.Repeat("y", 65_537) + "\r\n0\r\n\r\n",
		"Transfer-Encoding: chunked\r\n", strings.Repeat("y", 65_537)},
	{"grows", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n" + strings.Repeat("y", 70_000),
		"Transfer-Encoding: chunked\r\n", strings.Repeat("y", 70_000)},
}

func TestAnswersLeave(t *testing.T) {
	for seed, a := range lastingAnswers {
		t.Run(a.name, func(t *testing.T) {
			m, c, _ := newStreamMesh(t, meshOptions{apps: 1, direct: true, seed: uint64(seed), limits: smallMessages})
			app := m.script(0, a.says)
			m.speak(egress, getStream)
			m.until("a stream", func() bool { return len(c.answers) == 1 })
			if at := m.w.Now(); strings.HasPrefix(a.name, "pauses") != (at > 100*time.Millisecond) {
				t.Errorf("left after %v", at)
			}
			got := c.answers[0]
			resp, _, rest := headOf(t, got.Head)
			if !bytes.Contains(got.Head, []byte(a.framing)) || !bytes.Contains(got.Head, []byte("Connection: close\r\n")) || len(rest) > 0 {
				t.Errorf("the head is %q", got.Head)
			}
			for _, name := range []string{"via", "date", "x-request-id"} {
				if resp.Status != 200 || protocol.Find(resp.Headers, name) == nil {
					t.Errorf("status %d, no %s in %q", resp.Status, name, got.Head)
				}
			}
			if got.Chunks != strings.HasPrefix(a.framing, "Transfer") {
				t.Errorf("the body goes in chunks: %t", got.Chunks)
			}
			src := got.Source
			m.w.Run(time.Second)
			body, done, err := src.Body.Decode(drained(t, src.Socket), src.Buffer)
			if err != nil || done != (a.name == "long and whole") || string(src.Buffer.B) != a.here || src.Service != "compute" {
				t.Errorf("%d bytes decoded, done %t, %v, body %d bytes of %q", body, done, err, len(src.Buffer.B), src.Service)
			}
			if (*app).ended || m.consumer.proc.Held() != 0 || m.consumer.proc.Pending() != 1 || m.consumer.stats("compute").StreamsOpen != 1 {
				t.Errorf("application closed %t, %d bytes held, %d pending, stats %+v", (*app).ended,
					m.consumer.proc.Held(), m.consumer.proc.Pending(), m.consumer.stats("compute"))
			}
			settledStreams(m, c)
			m.until("the end of the application's connection", func() bool { return (*app).ended })
		})
	}
}

// What has an end soon is a message, whatever its type.
func TestShortAnswersStay(t *testing.T) {
	events := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
	for _, says := range []string{
		events + "Content-Length: 5\r\n\r\nfirst",
		events + "Transfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000\r\n" + strings.Repeat("x", 64<<10) + "\r\n0\r\n\r\n",
	} {
		m, c, _ := newStreamMesh(t, meshOptions{apps: 1, direct: true, limits: smallMessages})
		m.w.Options.Cut = 0
		m.script(0, says)
		p := m.speak(egress, getStream)
		m.until("an answer", func() bool { return bytes.Contains(p.heard, []byte("\r\n\r\n")) })
		if resp, h, _ := headOf(t, p.heard); resp.Status != 200 || !h.KeepAlive || len(c.answers) != 0 {
			t.Errorf("status %d, keep-alive %t, %d left", resp.Status, h.KeepAlive, len(c.answers))
		}
		m.w.Reset(p.conn)
		settledStreams(m, c)
	}
	// The length of a slow body is known.
	m, c, _ := newStreamMesh(t, meshOptions{apps: 1, direct: true, limits: smallMessages})
	app := m.script(0, events+"Content-Length: 5\r\n\r\nfir")
	p := m.speak(egress, getStream)
	m.w.Run(time.Second)
	m.apps[0].loop.Do(func() { (*app).conn.Write([]byte("st")) })
	m.until("an answer", func() bool { return bytes.HasSuffix(p.heard, []byte("first")) })
	m.w.Reset(p.conn)
	settledStreams(m, c)
}

// An HTTP/1.0 client reads until the close.
func TestStreamForOldClient(t *testing.T) {
	m, c, _ := newStreamMesh(t, meshOptions{apps: 1, direct: true})
	m.script(0, lastingAnswers[1].says)
	m.speak(egress, "GET /s HTTP/1.0\r\n\r\n")
	m.until("a stream", func() bool { return len(c.answers) == 1 })
	if a := c.answers[0]; a.Chunks || bytes.Contains(a.Head, []byte("hunked")) {
		t.Errorf("chunks %t, head %q", a.Chunks, a.Head)
	}
	settledStreams(m, c)
}

// A client that has not read what came before gets the stream after it; one that
// goes away, or never reads, ends it.
func TestStreamWaitsForSlowReader(t *testing.T) {
	for name, end := range map[string]func(m *mesh, p *peer){
		"reads":         nil,
		"write timeout": func(m *mesh, _ *peer) { m.w.Run(5 * time.Second) },
		"reset":         func(m *mesh, p *peer) { m.w.Reset(p.conn) },
	} {
		t.Run(name, func(t *testing.T) {
			m, c, _ := newStreamMesh(t, meshOptions{apps: 1, direct: true, limits: "timeouts: {write: 4s}"})
			// Within httpOutbound, so that the next request begins.
			big := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: 720000\r\n\r\n%0720000d", 0)
			says := big
			app := m.scripted(0, func() string { return says })
			p := m.speak(egress, "")
			m.until("a connection", func() bool { return p.conn != nil })
			m.w.Hold(p.conn, true)
			m.clients.Do(func() { p.conn.Write([]byte(getStream)) })
			m.w.Run(500 * time.Millisecond)
			says = lastingAnswers[1].says
			m.clients.Do(func() { p.conn.Write([]byte(getStream + getStream)) })
			m.w.Run(500 * time.Millisecond)
			if len(c.answers) != 0 || m.consumer.stats("compute").StreamsOpen != 1 {
				t.Fatalf("%d answers left, %d streams, want one that waits", len(c.answers), m.consumer.stats("compute").StreamsOpen)
			}
			if end != nil {
				end(m, p)
				m.w.Run(100 * time.Millisecond)
				m.w.Hold(p.conn, false)
				if len(c.answers) != 0 {
					t.Error("a stream left with a connection that has ended")
				}
				settledStreams(m, c)
				m.until("the end of the application's connection", func() bool { return (*app).ended })
				return
			}
			m.w.Hold(p.conn, false)
			m.until("a stream", func() bool { return len(c.answers) == 1 })
			m.until("the answer before it", func() bool { return len(p.heard) > 720_000 })
			settledStreams(m, c)
		})
	}
}

// An application that answers before it has read the request: the answer leaves
// once the request has.
func TestStreamBeforeRequestIsSent(t *testing.T) {
	m, c, _ := newStreamMesh(t, meshOptions{apps: 1, direct: true})
	a := m.apps[0]
	a.stop()
	app := &peer{says: []byte("")}
	m.w.Listen(a.addr, a.loop, func() proxy.Stream { return app })
	body := strings.Repeat("x", 2<<20)
	m.speak(egress, "POST /s HTTP/1.1\r\nHost: compute\r\nContent-Length: 2097152\r\n\r\n"+body)
	m.until("a connection", func() bool { return app.conn != nil })
	m.w.Hold(app.conn, true)
	a.loop.Do(func() { app.conn.Write([]byte(lastingAnswers[1].says)) })
	m.w.Run(time.Second)
	if len(c.answers) != 0 {
		t.Fatal("left with a part of the request to send")
	}
	m.w.Hold(app.conn, false)
	m.until("a stream", func() bool { return len(c.answers) == 1 })
	m.until("all of the request", func() bool { return bytes.HasSuffix(app.heard, []byte(body)) })
	settledStreams(m, c)
}

// Where connections can't leave, a long answer is refused, and one that lasts is
// a message as long as it is short.
func TestAnswersStayWithoutSockets(t *testing.T) {
	for _, a := range lastingAnswers {
		m, c, _ := newStreamMesh(t, meshOptions{apps: 1, direct: true, limits: smallMessages, noSockets: true})
		app := m.script(0, a.says)
		p := m.speak(egress, getStream)
		m.w.Run(time.Second)
		want, code := 200, ""
		if strings.HasPrefix(a.name, "long") || a.name == "grows" {
			want, code = 502, "response-too-large"
		} else {
			m.apps[0].loop.Do(func() { (*app).conn.Write([]byte("0\r\n\r\n")); (*app).conn.Drain() })
		}
		m.until("an answer", func() bool { return bytes.Contains(p.heard, []byte("\r\n\r\n")) })
		resp, _, _ := headOf(t, p.heard)
		if got := string(protocol.Find(resp.Headers, "x-remora-error")); resp.Status != want || got != code || len(c.answers) != 0 {
			t.Errorf("%s: status %d %s, %d left", a.name, resp.Status, got, len(c.answers))
		}
		m.w.Reset(p.conn)
		settledStreams(m, c)
	}
}

// The loser of a hedge that turns out to be a stream is closed, and the winner's
// stream is the client's.
func TestHedgedStream(t *testing.T) {
	m, c, _ := newStreamMesh(t, meshOptions{apps: 2, direct: true,
		service: ", idempotent: true, hedge: {mode: on, delay: 20ms, budget: 1}"})
	var apps [2]**peer
	for i := range apps {
		apps[i] = m.script(i, lastingAnswers[5].says) // both pause; the first one is left first
	}
	m.speak(egress, getStream)
	m.until("a stream", func() bool { return len(c.answers) == 1 })
	m.w.Run(time.Second)
	open := 0
	for _, app := range apps {
		if *app == nil {
			t.Fatal("no hedge was sent")
		}
		if !(*app).ended {
			open++
		}
	}
	if s := m.consumer.stats("compute"); open != 1 || s.StreamsOpen != 1 || s.Streams != 1 || len(c.answers) != 1 {
		t.Errorf("%d connections to applications, %d streams of %d, %d left", open, s.StreamsOpen, s.Streams, len(c.answers))
	}
	settledStreams(m, c)
}

// A bad answer that is a stream gives way to a better one, and ends.
func TestBadStreamIsRetried(t *testing.T) {
	m, c, _ := newStreamMesh(t, meshOptions{apps: 2, direct: true,
		service: `, idempotent: true, retry: {attempts: 1, on: [5xx]}, hedge: {budget: 1}`})
	bad := strings.Replace(lastingAnswers[1].says, "200 OK", "500 X", 1)
	first := true
	answer := func() string {
		if first {
			first = false
			return bad
		}
		return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	}
	m.scripted(0, answer)
	m.scripted(1, answer)
	for range 20 { // earns tokens for the retry
		p := m.speak(egress, getStream)
		m.until("an answer", func() bool { return bytes.HasSuffix(p.heard, []byte("ok")) || len(c.answers) > 0 })
		if len(c.answers) > 0 {
			break
		}
		m.w.Reset(p.conn)
	}
	if n := m.consumer.stats("compute").Retries; n != 1 || len(c.answers) != 0 {
		t.Errorf("%d retries, %d streams left", n, len(c.answers))
	}
	settledStreams(m, c)
}
