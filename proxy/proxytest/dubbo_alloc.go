package proxytest

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/registry"
)

// nullDubboApp is a provider's end of a connection. It sends the same response to every
// call.
type nullDubboApp struct {
	mesh *AllocMesh
	conn loop.Conn
	res  dubbo.Frame
	out  []byte
}

func (a *nullDubboApp) OnOpen(c loop.Conn) { a.conn = c }
func (a *nullDubboApp) OnClose(error)      {}

func (a *nullDubboApp) OnData(b []byte) {
	a.out = a.out[:0]
	for len(b) > 0 {
		var f dubbo.Frame
		f, b = a.mesh.nextFrame(b)
		a.mesh.Served++
		a.res.ID = f.ID
		a.out = dubbo.AppendFrame(a.out, &a.res)
	}
	a.conn.Write(a.out)
}

// nextFrame returns the first frame that a provider got, and what is behind the frame.
func (m *AllocMesh) nextFrame(b []byte) (f dubbo.Frame, rest []byte) {
	f, n, err := dubbo.Decode(b, math.MaxInt32)
	if err != nil || n == 0 {
		m.T.Fatalf("the provider got %x: %v", b, err)
	}
	return f, b[n:]
}

// NewDubboAllocMesh returns an AllocMesh with three Dubbo providers. listener is the
// protocol of the consumer's listener.
func NewDubboAllocMesh(t testing.TB, hops, clients int, listener string, res dubbo.Frame) *AllocMesh {
	m := &AllocMesh{T: t, Net: NewNullNet()}
	m.Net.Step = time.Microsecond
	consumer, accept := m.Sidecar(fmt.Sprintf(`
listeners: [{name: egress, address: "127.0.0.1:1", protocol: %s}]
routes: [{match: {service: com.acme.None}, service: compute}, {service: compute}]
services: {compute: {discover: static, endpoints: ["192.0.2.9:1"], protocol: %s, serialization: fastjson, max_pending: 10000}}`,
		listener, map[int]string{1: "dubbo", 2: "link"}[hops]))
	var endpoints []registry.Endpoint
	for i := range 3 {
		app := fmt.Sprintf("10.0.0.%d:20880", i+1)
		l := m.Net.Loop()
		m.Net.Accept[app] = func() (*NullLoop, loop.Receiver) { return l, &nullDubboApp{mesh: m, res: res} }
		endpoint := registry.Endpoint{Addr: app, Weight: 1}
		if hops == 2 {
			provider, accept := m.Sidecar(fmt.Sprintf(`
listeners: [{name: ingress, address: "127.0.0.1:1", protocol: link, service: local}]
services: {local: {discover: static, endpoints: ["%s"], protocol: dubbo, serialization: fastjson, max_pending: 10000, max_concurrency: 8}}`, app))
			provider.Update(registry.NewSnapshot("local", registry.SourceLive, time.Time{}, []registry.Endpoint{endpoint}))
			endpoint.Addr = fmt.Sprintf("10.0.0.%d:15006", i+1)
			m.Net.Accept[endpoint.Addr] = accept
		}
		endpoints = append(endpoints, endpoint)
	}
	m.Consumer = consumer
	consumer.Update(registry.NewSnapshot("compute", registry.SourceLive, time.Time{}, endpoints))
	m.Net.Pump()
	for range clients {
		l, s := accept()
		c, _ := m.Net.Connect(l, s, nil, nil)
		s.OnOpen(c)
		m.Clients = append(m.Clients, c)
	}
	return m
}

// NullProvider is the end of a connection at a Dubbo provider that sends what the test says.
type NullProvider struct {
	mesh  *AllocMesh
	Conn  *NullConn
	Calls []dubbo.Frame // so far, and heartbeats; their bodies are valid until the next ones arrive
}

// DubboProvider makes a provider the only endpoint of a mesh of NewDubboAllocMesh with one hop.
func (m *AllocMesh) DubboProvider() *NullProvider {
	const addr = "10.0.0.9:20880"
	p, l := &NullProvider{mesh: m}, m.Net.Loop()
	m.Net.Accept[addr] = func() (*NullLoop, loop.Receiver) { return l, p }
	m.Consumer.Update(registry.NewSnapshot("compute", registry.SourceLive, time.Time{}, []registry.Endpoint{{Addr: addr, Weight: 1}}))
	m.Net.Pump()
	return p
}

func (p *NullProvider) OnOpen(c loop.Conn) { p.Conn = c.(*NullConn) }
func (p *NullProvider) OnClose(error)      {}

func (p *NullProvider) OnData(b []byte) {
	for len(b) > 0 {
		var f dubbo.Frame
		f, b = p.mesh.nextFrame(b)
		p.Calls = append(p.Calls, f)
	}
}

// Responses returns a response to each of the first Calls: their frames, with these bodies.
func (p *NullProvider) Responses(bodies ...[]byte) (frames []byte) {
	for i, body := range bodies {
		f := &p.Calls[i]
		frames = dubbo.AppendFrame(frames, &dubbo.Frame{Serialization: f.Serialization, Status: dubbo.StatusOK, ID: f.ID, Body: body})
	}
	return frames
}
