package proxytest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
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
	Route    string // YAML fields of the last route
	Service  string // YAML fields of the consumer's service, besides discover and protocol
	Provider string // YAML fields of the provider's service
	Response string // of the applications, head and body
	Clients  int
	Speaks   string  // protocol of the applications; default http
	Frames   Frames  // their response, if they speak HTTP/2
	Late     bool    // one of three applications responds only after all other work
	Top      string  // YAML at top level of the consumer and of the providers
	Allocs   float64 // bound per request on average: sampled requests allocate
}

// NewAllocMesh returns a mesh with connected clients.
func NewAllocMesh(t testing.TB, o AllocMeshOptions) *AllocMesh {
	m := &AllocMesh{T: t, Net: NewNullNet()}
	m.Net.Step = time.Microsecond
	speaks := cmp.Or(o.Speaks, "http")
	kind := map[int]string{1: speaks, 2: "link"}[o.Hops]
	consumer, accept := m.Sidecar(fmt.Sprintf(`
listeners: [{name: egress, address: "127.0.0.1:1", protocol: http}]
routes:
%s
  - {match: {header: {x-none: there}}, service: compute}
  - {match: {path: /}, rewrite: {path: /rewritten/}, %s}
services: {compute: {%s}}
%s`, o.Routes, Fields("service: compute", o.Route), Fields(`discover: static, endpoints: ["192.0.2.9:1"], max_pending: 10000, protocol: `+kind, o.Service), o.Top))
	var endpoints []registry.Endpoint
	for i := range 3 {
		app := fmt.Sprintf("10.0.0.%d:8080", i+1)
		m.app(app, o, o.Late && i == 0)
		if o.Hops == 1 {
			endpoints = append(endpoints, registry.Endpoint{Addr: app, Weight: 1})
			continue
		}
		link := fmt.Sprintf("10.0.0.%d:15006", i+1)
		provider, accept := m.Sidecar(fmt.Sprintf(`
listeners: [{name: ingress, address: "127.0.0.1:1", protocol: link, service: local}]
services: {local: {%s}}
%s`, Fields(fmt.Sprintf("discover: static, endpoints: [%q], protocol: %s, max_pending: 10000", app, speaks), o.Provider), o.Top))
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
func (m *AllocMesh) Sidecar(yaml string) (p *proxy.Process, accept func() (*NullLoop, loop.Receiver)) {
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
	return p, func() (*NullLoop, loop.Receiver) { return l, listener.Accept(w) }
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

// app starts an application that responds to each input, or each HTTP/2 request.
func (m *AllocMesh) app(addr string, o AllocMeshOptions, late bool) {
	l := m.Net.Loop()
	m.Net.Accept[addr] = func() (*NullLoop, loop.Receiver) {
		if o.Speaks != "" {
			return l, &nullHTTP2App{mesh: m, response: o.Frames}
		}
		return l, &nullApp{mesh: m, response: []byte(o.Response), late: late}
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

// Frames are what one side of an exchange over HTTP/2 sends. Those of a connection's first stream
// fill the table of the peer, and those of the others use it.
type Frames struct{ First, Later []byte }

// Append appends the frames on a stream to dst.
func (f *Frames) Append(dst []byte, stream uint32) []byte {
	b := f.Later
	if stream == 1 {
		b = f.First
	}
	at := len(dst)
	dst = append(dst, b...)
	EachFrame(dst[at:], func(f []byte) { binary.BigEndian.PutUint32(f[5:], stream) })
	return dst
}

// Of frames of HTTP/2: their types, flags, and the length of the head.
const (
	FrameHead = 9

	FrameData, FrameHeaders, FrameReset, FrameSettings, FramePing = 0, 1, 3, 4, 6
	FlagEnd, FlagEndHeaders, flagAck                              = 1, 4, 1
)

// Frame returns a frame on stream 0.
func Frame(kind, flags byte, payload string) []byte {
	n := len(payload)
	return append([]byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags, 0, 0, 0, 0}, payload...)
}

// EachFrame calls do with each whole frame of b.
func EachFrame(b []byte, do func(f []byte)) {
	for len(b) >= FrameHead {
		n := FrameHead + (int(b[0])<<16 | int(b[1])<<8 | int(b[2]))
		if len(b) < n {
			return
		}
		do(b[:n])
		b = b[n:]
	}
}

const http2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// greeting is SETTINGS, and a window for a thousand million bytes.
var greeting = append(Frame(FrameSettings, 0, ""), Frame(8, 0, "\x40\x00\x00\x00")...)

// Greet makes the clients of the mesh ones of HTTP/2.
func (m *AllocMesh) Greet() {
	for _, c := range m.Clients {
		c.Deliver([]byte(http2Preface))
		c.Deliver(greeting)
	}
	m.Net.Pump()
	for _, c := range m.Clients {
		c.Deliver(Frame(FrameSettings, flagAck, ""))
		c.Out = c.Out[:0]
	}
}

// nullHTTP2App is a connection to an HTTP/2 application.
type nullHTTP2App struct {
	mesh     *AllocMesh
	conn     loop.Conn
	in, out  []byte
	greeted  bool
	response Frames
}

func (a *nullHTTP2App) OnOpen(c loop.Conn) { a.conn = c }
func (a *nullHTTP2App) OnClose(error)      {}

func (a *nullHTTP2App) OnData(b []byte) {
	a.out = a.out[:0]
	if a.in = append(a.in, b...); !a.greeted {
		if len(a.in) < len(http2Preface) {
			return
		}
		a.greeted, a.in, a.out = true, a.in[len(http2Preface):], append(a.out, greeting...)
	}
	used := 0
	EachFrame(a.in, func(f []byte) {
		used += len(f)
		switch kind, ends := f[3], f[4]&FlagEnd != 0; {
		case kind == FrameSettings && !ends:
			a.out = append(a.out, Frame(FrameSettings, flagAck, "")...)
		case kind == FramePing && !ends:
			a.out = append(a.out, Frame(FramePing, flagAck, string(f[FrameHead:]))...)
		case kind <= FrameHeaders && ends:
			a.mesh.Served++
			a.out = a.response.Append(a.out, binary.BigEndian.Uint32(f[5:]))
		}
	})
	a.in = append(a.in[:0], a.in[used:]...)
	a.conn.Write(a.out)
}
