package proxytest

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

	"github.com/remora-proxy/remora/internal/racetest"
	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
	"github.com/remora-proxy/remora/registry"
)

// AllocMesh is clients, a consumer's sidecar, applications, and with two hops also
// providers' sidecars, all on the null driver.
type AllocMesh struct {
	T        testing.TB
	Net      *nullNet
	Consumer *proxy.Process
	Clients  []*NullConn // the sidecar's ends: responses stay in Out
	late     []*nullApp  // connections that owe responses
	Served   int         // requests that reached applications
}

// AllocMeshOptions are the options of an AllocMesh.
type AllocMeshOptions struct {
	Hops     int
	Routes   string // YAML of routes before the two others
	Service  string // YAML fields of the consumer's service, besides discover and protocol
	Provider string // YAML fields of the provider's service
	Response string // of the applications, head and body
	Clients  int
	Late     bool    // one of three applications responds only after all other work
	Top      string  // YAML at top level of the consumer and of the providers
	Allocs   float64 // bound per request on average: sampled requests allocate
}

// NewAllocMesh returns a mesh with connected clients.
func NewAllocMesh(t testing.TB, o AllocMeshOptions) *AllocMesh {
	m := &AllocMesh{T: t, Net: NewNullNet()}
	m.Net.Step = time.Microsecond
	kind := map[int]string{1: "http", 2: "link"}[o.Hops]
	consumer, accept := m.Sidecar(fmt.Sprintf(`
listeners: [{name: egress, address: "127.0.0.1:1", protocol: http}]
routes:
%s
  - {match: {header: {x-none: there}}, service: compute}
  - {match: {path: /}, rewrite: {path: /rewritten/}, service: compute}
services: {compute: {%s}}
%s`, o.Routes, Fields(`discover: static, endpoints: ["192.0.2.9:1"], max_pending: 10000, protocol: `+kind, o.Service), o.Top))
	var endpoints []registry.Endpoint
	for i := range 3 {
		app := fmt.Sprintf("10.0.0.%d:8080", i+1)
		m.app(app, o.Response, o.Late && i == 0)
		if o.Hops == 1 {
			endpoints = append(endpoints, registry.Endpoint{Addr: app, Weight: 1})
			continue
		}
		link := fmt.Sprintf("10.0.0.%d:15006", i+1)
		provider, accept := m.Sidecar(fmt.Sprintf(`
listeners: [{name: ingress, address: "127.0.0.1:1", protocol: link, service: local}]
services: {local: {%s}}
%s`, Fields(fmt.Sprintf("discover: static, endpoints: [%q], protocol: http, max_pending: 10000", app), o.Provider), o.Top))
		m.Net.Accept[link] = accept
		provider.Update(registry.NewSnapshot("local", registry.SourceLive, time.Time{}, []registry.Endpoint{{Addr: app, Weight: 1}}))
		endpoints = append(endpoints, registry.Endpoint{Addr: link, Weight: 1})
	}
	m.Consumer = consumer
	consumer.Update(registry.NewSnapshot("compute", registry.SourceLive, time.Time{}, endpoints))
	m.Net.Pump()
	for range o.Clients {
		l, s := accept()
		c, _ := m.Net.Connect(l, s, nil, nil)
		s.OnOpen(c)
		m.Clients = append(m.Clients, c)
	}
	return m
}

// discardSink is a trace.Sink that discards all records.
type discardSink struct{}

func (discardSink) Put(*trace.Record) {}

// nullApp is a connection to an application. It responds to each input, which is one
// request: the upstream writes a small request at once.
type nullApp struct {
	mesh     *AllocMesh
	conn     loop.Conn
	response []byte
	late     bool
}

func (a *nullApp) OnOpen(c loop.Conn) { a.conn = c }
func (a *nullApp) OnClose(error)      {}

func (a *nullApp) OnData([]byte) {
	a.mesh.Served++
	if a.late {
		a.mesh.late = append(a.mesh.late, a)
		return
	}
	a.conn.Write(a.response)
}

// Sidecar starts a sidecar; accept returns the session of a connection to it.
func (m *AllocMesh) Sidecar(yaml string) (p *proxy.Process, accept func() (*NullLoop, loop.Stream)) {
	cfg, err := config.Parse("alloc.yaml", []byte(yaml), func(string) (string, bool) { return "", false })
	if err != nil {
		m.T.Fatal(err)
	}
	l := m.Net.Loop()
	p = proxy.NewProcess(cfg, 1)
	p.SetWall(time.Now)
	p.SetSpans(discardSink{})
	if cfg.AccessLog.Path != "" {
		p.Generation().LogTo(m.accessLog(cfg))
	}
	w := proxy.NewWorker(p, l, slog.New(slog.NewTextHandler(io.Discard, nil)), 1)
	listener := p.Generation().Listener(cfg.Listeners[0].Name)
	return p, func() (*NullLoop, loop.Stream) { return l, listener.Accept(w) }
}

// accessLog returns a queue whose lines are discarded.
func (m *AllocMesh) accessLog(cfg *config.Config) *accesslog.Queue {
	q := accesslog.NewQueue(cfg.AccessLog.Buffer, 1, new(accesslog.Counts))
	w, err := accesslog.Open(os.DevNull, q, nil)
	if err != nil {
		m.T.Fatal(err)
	}
	m.T.Cleanup(func() {
		if err := w.Close(context.Background()); err != nil {
			m.T.Error(err)
		}
	})
	return q
}

// app starts an application that responds to each input.
func (m *AllocMesh) app(addr, response string, late bool) {
	l := m.Net.Loop()
	m.Net.Accept[addr] = func() (*NullLoop, loop.Stream) {
		return l, &nullApp{mesh: m, response: []byte(response), late: late}
	}
}

// Call sends a request on every connection, in the given pieces, and checks that each
// connection gets one 200 that ends with want.
func (m *AllocMesh) Call(want []byte, pieces ...[]byte) {
	for _, piece := range pieces {
		for _, c := range m.Clients {
			c.Deliver(piece)
		}
	}
	m.Net.Pump()
	for range 3 { // hedges are sent and win, and the losers' responses arrive
		m.Net.Advance(5 * time.Millisecond)
		m.Net.Pump()
	}
	for _, a := range m.late {
		a.conn.Write(a.response)
	}
	m.late = m.late[:0]
	m.Net.Pump()
	for _, c := range m.Clients {
		if !bytes.HasPrefix(c.Out, OKPrefix) || !bytes.HasSuffix(c.Out, want) || bytes.Count(c.Out, OKPrefix) != 1 {
			m.T.Fatalf("response %q, want one 200 that ends with %q", c.Out, want)
		}
		c.Out = c.Out[:0]
	}
}

// CheckAllocs runs f until free lists and buffers are filled, and then checks that a run
// allocates at most so much.
func (m *AllocMesh) CheckAllocs(most float64, f func()) {
	m.T.Helper()
	warm := 200
	if racetest.Enabled {
		warm = 20
	}
	for range warm {
		f()
	}
	if racetest.Enabled {
		return
	}
	// A garbage collection empties sync.Pool; refilling it is not the request's work.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	runtime.GC()
	f()
	if n := testing.AllocsPerRun(500, f); n > most {
		m.T.Errorf("%v allocations per run of %d requests, want at most %v", n, len(m.Clients), most)
	}
}

// CheckReleased checks that buffers are kept, that they are released in time, and that
// no message bytes are held.
func (m *AllocMesh) CheckReleased() {
	m.T.Helper()
	if m.Consumer.Kept() == 0 {
		m.T.Error("no buffers were kept")
	}
	for range 3 {
		m.Net.Advance(time.Second)
		m.Net.Pump()
	}
	if kept, held := m.Consumer.Kept(), m.Consumer.Held(); kept != 0 || held != 0 {
		m.T.Errorf("%d bytes kept and %d held at rest", kept, held)
	}
}

// CallFrame sends a frame on every connection and checks that each gets the response want.
func (m *AllocMesh) CallFrame(call, want []byte) {
	for _, c := range m.Clients {
		c.Deliver(call)
	}
	m.Net.Pump()
	for _, c := range m.Clients {
		if !bytes.Equal(c.Out, want) {
			m.T.Fatalf("response %x, want %x", c.Out, want)
		}
		c.Out = c.Out[:0]
	}
}
