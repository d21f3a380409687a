package proxy_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// TestReloadListenerSettings: what a reload changes of a listener that continues, counts for the next request on an open
// connection.
func TestReloadListenerSettings(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{OneHop: true, Apps: 1})
	p := m.DialAndSend(proxytest.Egress, "")
	m.RunUntil("the connection", func() bool { return p.Conn != nil })
	reload := func(listener, route string) {
		t.Helper()
		m.Consumer.Reload(`
listeners: [{name: egress, address: "127.0.0.1:15001", protocol: http, ` + listener + `}]
routes: [{service: compute, ` + route + `}]
services: {compute: {discover: static, endpoints: ["10.0.9.9:1"], protocol: http}}`)
	}
	ask := func(text string) string {
		heard := len(p.Heard)
		m.Clients.Do(func() { p.Conn.Write([]byte(text)) })
		m.W.Run(100 * time.Millisecond)
		return string(p.Heard[heard:])
	}
	get := func(path string) string {
		line, _, _ := strings.Cut(ask("GET "+path+" HTTP/1.1\r\nHost: compute\r\n\r\n"), "\r\n")
		return line
	}
	var paths []string
	m.Apps[0].OnRequest = func(req *protocol.Request) { paths = append(paths, string(req.Path)) }
	const ok, rules = "HTTP/1.1 200 ", "allow: {rules: [{method: [PUT]}]}"

	for _, c := range []struct{ listener, want string }{{"", ok}, {rules, "HTTP/1.1 403 "}, {"", ok}} {
		if reload(c.listener, ""); !strings.HasPrefix(get("/"), c.want) {
			t.Errorf("with %q the listener does not respond %s", c.listener, c.want)
		}
	}
	paths = nil
	for _, c := range []struct{ listener, route string }{{"", "match: {path: /b}"}, {"", "match: {method: [GET]}"}, {"service: compute", "match: {path: /b}"}} {
		reload(c.listener, c.route)
		get("/a/../b")
	}
	if got := strings.Join(paths, " "); got != "/b /a/../b /a/../b" {
		t.Errorf("the application got the paths %s", got)
	}
}

// TestReloadForwarded: what a listener does with headers of clients that are not trusted is that of the configuration with which
// their connection began.
func TestReloadForwarded(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{OneHop: true, Apps: 1})
	ask := func(p *proxytest.Peer) string {
		heard := len(p.Heard)
		m.Clients.Do(func() { p.Conn.Write([]byte("GET / HTTP/1.1\r\nHost: compute\r\nX_a: b\r\n\r\n")) })
		m.W.Run(100 * time.Millisecond)
		line, _, _ := strings.Cut(string(p.Heard[heard:]), "\r\n")
		return line
	}
	var open []*proxytest.Peer
	for i, c := range []struct{ listener, want string }{
		{"", "HTTP/1.1 200 "}, {"forwarded: {underscores: reject}", "HTTP/1.1 400 "}, {"forwarded: {underscores: keep}", "HTTP/1.1 200 "},
	} {
		m.Consumer.Reload(`
listeners: [{name: egress, address: "127.0.0.1:15001", protocol: http, ` + c.listener + `}]
routes: [{service: compute}]
services: {compute: {discover: static, endpoints: ["10.0.9.9:1"], protocol: http}}`)
		if i == 1 && !strings.HasPrefix(ask(open[0]), "HTTP/1.1 200 ") {
			t.Error("the reload has changed a connection")
		}
		p := m.DialAndSend(proxytest.Egress, "")
		m.RunUntil("the connection", func() bool { return p.Conn != nil })
		open = append(open, p)
		if got := ask(p); !strings.HasPrefix(got, c.want) {
			t.Errorf("with %q: %s", c.listener, got)
		}
	}
}

// TestReloadKeepsCache: a reload keeps what a route has in its cache, unless it changes the service.
func TestReloadKeepsCache(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{OneHop: true, Apps: 1})
	served := 0
	m.Apps[0].OnRequest = func(*protocol.Request) { served++ }
	for i, c := range []struct {
		service, more string
		served        int
	}{{"", "", 1}, {"", "timeouts: {idle: 1h}", 1}, {", max_concurrency: 5", "", 2}, {", max_concurrency: 5", "timeouts: {idle: 1h}", 2}} {
		m.Consumer.Reload(proxytest.ReloadYAML(m, "{service: compute, cache: {ttl: 1h}}", "compute: {%s"+c.service+"}") + "\n" + c.more)
		for range 2 {
			p := m.DialAndSend(proxytest.Egress, "GET /same HTTP/1.1\r\nHost: compute\r\n\r\n")
			m.RunUntil("a response", func() bool { return bytes.Contains(p.Heard, []byte("\r\n\r\n")) })
		}
		if served != c.served {
			t.Errorf("configuration %d: the application has served %d requests, want %d", i, served, c.served)
		}
	}
}

// TestReloadOfStreams: requests that no route matches are refused, or go to the host that they name, and a client that waits
// with its body is told to send it by the sidecar or the application, as the configuration in use says.
func TestReloadOfStreams(t *testing.T) {
	m, consumer, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{OneHop: true, Apps: 1})
	const elsewhere = "GET http://192.0.2.1/ HTTP/1.1\r\nHost: 192.0.2.1\r\n\r\n"
	const waits = "POST / HTTP/1.1\r\nHost: compute\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n"
	for i, c := range []struct {
		listener, request string
		want              string // what the client gets; empty means that the connection leaves its loop
	}{
		{"", elsewhere, "HTTP/1.1 404 "}, {"unrouted: direct", elsewhere, ""}, {"unrouted: refuse", elsewhere, "HTTP/1.1 404 "},
		{"", waits, "HTTP/1.1 100 "}, {"expect: forward", waits, ""}, {"expect: answer", waits, "HTTP/1.1 100 "},
	} {
		m.Consumer.Reload(`
listeners: [{name: egress, address: "127.0.0.1:15001", protocol: http, ` + c.listener + `}]
routes: [{match: {host: compute}, service: compute}]
services: {compute: {discover: static, endpoints: ["10.0.9.9:1"], protocol: http}}`)
		streams := len(consumer.Requests) + len(consumer.Passed)
		p := m.DialAndSend(proxytest.Egress, c.request)
		m.W.Run(time.Second)
		left := len(consumer.Requests)+len(consumer.Passed) > streams
		if left != (c.want == "") || !bytes.HasPrefix(p.Heard, []byte(c.want)) || left && len(p.Heard) > 0 {
			t.Errorf("%d, %q: the connection has left its loop: %t; %q", i, c.listener, left, p.Heard)
		}
	}
}

// TestProcessParts: the process has the clock, the receiver of spans and the implementation of streams that it was given.
func TestProcessParts(t *testing.T) {
	m, consumer, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: `tracing: {endpoint: "http://192.0.2.1:4318", sample: 1}`})
	spans := m.Consumer.RecordSpans()
	c := m.Post(10)
	m.Do(c)
	m.OK(c)
	m.Settled()
	if r := spans.Only(t); r.Service != "compute" || r.Status != 200 {
		t.Errorf("%+v", r)
	}
	p := m.DialAndSend(proxytest.Egress, "GET /none HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
	m.RunUntil("a stream", func() bool { return len(consumer.Requests) == 1 })
	if p.Ended {
		t.Error("the connection of the stream is closed")
	}
	m.Consumer.Proc.SetStreams(nil)
	p = m.DialAndSend(proxytest.Egress, "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
	m.RunUntil("a response", func() bool { return bytes.Contains(p.Heard, []byte("\r\n\r\n")) })
	if len(consumer.Requests) != 1 || !bytes.HasPrefix(p.Heard, []byte("HTTP/1.1 200 ")) {
		t.Errorf("without streams an upgrade is not ignored: %d streams, %q", len(consumer.Requests), p.Heard)
	}
	refused := m.Complete(m.Raw("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n"))
	if date := protocol.Find(refused.Headers, "date"); refused.Status != 400 || !bytes.HasPrefix(date, []byte("Mon, 30 Mar 2026 00:00:")) && !bytes.HasPrefix(date, []byte("Sun, 29 Mar 2026 23:59:")) {
		t.Errorf("status %d, date %q", refused.Status, date)
	}
}

// TestReportsOfHTTP2: a report shares no count of HTTP/2 with the loop.
func TestReportsOfHTTP2(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	misuse := func() stats.WorkerReport {
		p := m.DialAndSend(proxytest.Egress, http2.Preface+"no frame of settings")
		m.RunUntil("the end of the connection", func() bool { return p.Ended })
		return m.Consumer.Report()
	}
	sum := func(r stats.WorkerReport) (n uint64) {
		for _, more := range r.Stats.HTTP2 {
			n += more
		}
		return n
	}
	first, second := misuse(), misuse()
	if a, b := sum(first), sum(second); a != 1 || b != 2 {
		t.Errorf("%d, then %d", a, b)
	}
}

// meteredLoop is a loop that counts its turns, and lets others read while it waits.
type meteredLoop struct {
	loop.Loop
	waits bool
}

func (l *meteredLoop) Peek(f func()) bool {
	if l.waits {
		f()
	}
	return l.waits
}

func (l *meteredLoop) Stats() (s stats.LoopStats) {
	s.Events = 7
	for range 5 {
		s.Turns.Observe(time.Millisecond)
	}
	return s
}

// TestPeek: others read a loop while it waits, if it can be read then. Its turns are known while it waits.
func TestPeek(t *testing.T) {
	plain := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1}).Consumer.Proc.Workers()[0]
	if n, ok := plain.Turns(); ok || n != 0 || plain.Peek(func() { t.Error("a loop was read") }) {
		t.Errorf("%d turns of a loop that can't be read", n)
	}
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, Dialler: func(of loop.Loop) loop.Loop { return &meteredLoop{of, true} }})
	w := m.Consumer.Proc.Workers()[0]
	read := 0
	if n, ok := w.Turns(); !ok || n != 5 || !w.Peek(func() { read++ }) || read != 1 {
		t.Errorf("%d turns, %t; read %d times", n, ok, read)
	}
	if r := m.Consumer.Report(); r.Loop.Events != 7 {
		t.Errorf("%+v", r.Loop)
	}
	w.Post(func() { read++ })
	m.RunUntil("the function to run", func() bool { return read == 2 })
}
