package proxy_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/accesslog"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/trace"
	"github.com/remora-proxy/remora/registry"
)

// allocMesh is clients, a consumer's sidecar, perhaps providers' sidecars, and
// applications, all on the null driver.
type allocMesh struct {
	t        testing.TB
	net      *nullNet
	consumer *proxy.Process
	clients  []*nullConn // the sessions' own ends: what they answer piles up there
	late     []*nullApp  // which owe answers
	served   int         // requests that reached applications
}

// allocMeshOptions shape an allocMesh.
type allocMeshOptions struct {
	hops     int
	service  string // YAML of the consumer's service, beyond discover and protocol
	provider string // YAML of the provider's service
	answer   string // of the applications
	clients  int
	late     bool    // one of three applications answers when all else has come to rest
	top      string  // YAML at top level of the consumer and of the providers
	allocs   float64 // at most, of a request on average: what is traced allocates
}

func newAllocMesh(t testing.TB, o allocMeshOptions) *allocMesh {
	m := &allocMesh{t: t, net: newNullNet()}
	m.net.step = time.Microsecond
	kind := map[int]string{1: "http", 2: "link"}[o.hops]
	consumer, accept := m.sidecar(fmt.Sprintf(`
listeners: [{name: egress, address: "127.0.0.1:1", protocol: http}]
routes:
  - {match: {header: {x-none: there}}, service: compute}
  - {match: {path: /}, rewrite: {path: /rewritten/}, service: compute}
services: {compute: {discover: static, endpoints: ["192.0.2.9:1"], protocol: %s, max_pending: 10000%s}}
%s`, kind, o.service, o.top))
	var endpoints []registry.Endpoint
	for i := range 3 {
		app := fmt.Sprintf("10.0.0.%d:8080", i+1)
		m.app(app, o.answer, o.late && i == 0)
		if o.hops == 1 {
			endpoints = append(endpoints, registry.Endpoint{Addr: app, Weight: 1})
			continue
		}
		link := fmt.Sprintf("10.0.0.%d:15006", i+1)
		provider, accept := m.sidecar(fmt.Sprintf(`
listeners: [{name: ingress, address: "127.0.0.1:1", protocol: link, service: local}]
services: {local: {discover: static, endpoints: ["%s"], protocol: http, max_pending: 10000%s}}
%s`, app, o.provider, o.top))
		m.net.accept[link] = accept
		provider.Update(registry.NewSnapshot("local", registry.SourceLive, time.Time{}, []registry.Endpoint{{Addr: app, Weight: 1}}))
		endpoints = append(endpoints, registry.Endpoint{Addr: link, Weight: 1})
	}
	m.consumer = consumer
	consumer.Update(registry.NewSnapshot("compute", registry.SourceLive, time.Time{}, endpoints))
	m.net.pump()
	for range o.clients {
		l, s := accept()
		c, _ := m.net.connect(l, s, nil, nil)
		s.OnOpen(c)
		m.clients = append(m.clients, c)
	}
	return m
}

// sidecar starts one; accept makes the session of a connection to it.
func (m *allocMesh) sidecar(yaml string) (p *proxy.Process, accept func() (*nullLoop, proxy.Stream)) {
	cfg, err := config.Parse("alloc.yaml", []byte(yaml), func(string) (string, bool) { return "", false })
	if err != nil {
		m.t.Fatal(err)
	}
	l := m.net.loop()
	p = proxy.NewProcess(cfg, 1)
	p.SetWall(time.Now)
	p.SetSpans(nowhere{})
	if cfg.AccessLog.Path != "" {
		p.Generation().LogTo(m.accessLog(cfg))
	}
	w := proxy.NewWorker(p, l, slog.New(slog.NewTextHandler(io.Discard, nil)), 1)
	entrance := p.Generation().Entrance(cfg.Listeners[0].Name)
	return p, func() (*nullLoop, proxy.Stream) { return l, entrance.Accept(w) }
}

// nowhere is where the records of sampled requests go.
type nowhere struct{}

func (nowhere) Put(*trace.Record) {}

// accessLog is a queue whose lines go nowhere.
func (m *allocMesh) accessLog(cfg *config.Config) *accesslog.Queue {
	q := accesslog.NewQueue(cfg.AccessLog.Buffer, 1, new(accesslog.Counts))
	w, err := accesslog.Open(os.DevNull, q, nil)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		if err := w.Close(context.Background()); err != nil {
			m.t.Error(err)
		}
	})
	return q
}

// app accepts connections and answers each piece of input.
func (m *allocMesh) app(addr, answer string, late bool) {
	l := m.net.loop()
	m.net.accept[addr] = func() (*nullLoop, proxy.Stream) {
		return l, &nullApp{mesh: m, answer: []byte(answer), late: late}
	}
}

// nullApp is a connection to an application. It answers whatever comes in, which
// is one request each time: the upstream writes a small one at once.
type nullApp struct {
	mesh   *allocMesh
	conn   proxy.Conn
	answer []byte
	late   bool
}

func (a *nullApp) OnOpen(c proxy.Conn) { a.conn = c }
func (a *nullApp) OnClose(error)       {}

func (a *nullApp) OnData([]byte) {
	a.mesh.served++
	if a.late {
		a.mesh.late = append(a.mesh.late, a)
		return
	}
	a.conn.Write(a.answer)
}

// call sends a request on every connection, in the given pieces, and sees that
// each gets the one answer that the application gave.
func (m *allocMesh) call(want []byte, pieces ...[]byte) {
	for _, piece := range pieces {
		for _, c := range m.clients {
			c.deliver(piece)
		}
	}
	m.net.pump()
	for range 3 { // hedges leave, win, and the losers' answers come
		m.net.skip(5 * time.Millisecond)
		m.net.pump()
	}
	for _, a := range m.late {
		a.conn.Write(a.answer)
	}
	m.late = m.late[:0]
	m.net.pump()
	for _, c := range m.clients {
		if !bytes.HasPrefix(c.out, ok) || !bytes.HasSuffix(c.out, want) || bytes.Count(c.out, ok) != 1 {
			m.t.Fatalf("answer %q, want one 200 that ends with %q", c.out, want)
		}
		c.out = c.out[:0]
	}
}

var ok = []byte("HTTP/1.1 200")

const (
	postHead = "POST /compute HTTP/1.1\r\nHost: compute\r\nContent-Type: application/json\r\nContent-Length: 300\r\n\r\n"
	getHead  = "GET /features?user=42 HTTP/1.1\r\nHost: compute\r\nAccept: */*\r\nUser-Agent: test\r\nTraceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n\r\n"
)

const forwardedHead = "GET / HTTP/1.1\r\nHost: compute\r\nX-Forwarded-For: 198.51.100.7, 203.0.113.9\r\nX-Forwarded-Proto: https\r\nX-Request-Id: 7\r\nVia: 1.1 edge\r\n\r\n"

// TestAllocationsPerRequest: once connections, free lists and buffers are there,
// a request's whole way through one sidecar or two allocates nothing: HTTP in,
// perhaps the link and the second sidecar, HTTP out, and the answer back. What is
// sampled for a trace does, which is one in a thousand of those observed.
func TestAllocationsPerRequest(t *testing.T) {
	for _, hops := range []int{1, 2} {
		for _, clients := range []int{1, 64} {
			for _, c := range shapes() {
				t.Run(fmt.Sprintf("%d hops/%d clients/%s", hops, clients, c.name), func(t *testing.T) {
					c.o.hops, c.o.clients = hops, clients
					m := newAllocMesh(t, c.o)
					want, pieces := []byte(shapeAnswer), bytesOf(c.pieces)
					calls := 0
					m.allocates(c.o.allocs*float64(clients), func() { m.call(want, pieces...); calls += clients })
					if hedged := m.served > calls; hedged != c.o.late {
						t.Errorf("%d calls, the applications served %d", calls, m.served)
					}
				})
			}
		}
	}
}

// allocates runs f until all is warm and then checks what a run allocates.
func (m *allocMesh) allocates(most float64, f func()) {
	m.t.Helper()
	warm := 200
	if raceEnabled {
		warm = 20
	}
	for range warm {
		f()
	}
	if raceEnabled {
		return
	}
	// A collection empties sync.Pool, whose refilling is not the request's.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	runtime.GC()
	f()
	if n := testing.AllocsPerRun(500, f); n > most {
		m.t.Errorf("%v allocations per run of %d requests, want at most %v", n, len(m.clients), most)
	}
}
