package proxy_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/registry"
)

// nullDubboApp is a provider's end of a connection. It sends the same response to every
// call.
type nullDubboApp struct {
	mesh *proxytest.AllocMesh
	conn loop.Conn
	res  dubbo.Frame
	out  []byte
}

func (a *nullDubboApp) OnOpen(c loop.Conn) { a.conn = c }
func (a *nullDubboApp) OnClose(error)      {}

func (a *nullDubboApp) OnData(b []byte) {
	a.out = a.out[:0]
	for len(b) > 0 {
		f, n, err := dubbo.Decode(b, math.MaxInt32)
		if err != nil || n == 0 {
			a.mesh.T.Fatalf("the provider got %x: %v", b, err)
		}
		b = b[n:]
		a.mesh.Served++
		a.res.ID = f.ID
		a.out = dubbo.AppendFrame(a.out, &a.res)
	}
	a.conn.Write(a.out)
}

// newDubboAllocMesh returns an AllocMesh with three Dubbo providers. listener is the
// protocol of the consumer's listener.
func newDubboAllocMesh(t testing.TB, hops, clients int, listener string, res dubbo.Frame) *proxytest.AllocMesh {
	m := &proxytest.AllocMesh{T: t, Net: proxytest.NewNullNet()}
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
		m.Net.Accept[app] = func() (*proxytest.NullLoop, loop.Receiver) { return l, &nullDubboApp{mesh: m, res: res} }
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

// keepBuffers makes the pool keep buffers of this test's sizes. It keeps buffers of the
// sizes that were frequent lately, which earlier tests decide.
func keepBuffers() {
	const calibrates = 42_001 // bytebufferpool decides anew after so many buffers of a size
	for range 3 * calibrates {
		b := bytebufferpool.Get()
		_, _ = b.Write(make([]byte, 1000))
		bytebufferpool.Put(b)
	}
}

// TestAllocationsPerDubboCall: a form call to a Dubbo provider and its response allocate
// nothing, and neither does a Dubbo call.
func TestAllocationsPerDubboCall(t *testing.T) {
	keepBuffers()
	for _, hops := range []int{1, 2} {
		for _, clients := range []int{1, 64} {
			t.Run(fmt.Sprintf("%d hops/%d clients/form", hops, clients), func(t *testing.T) {
				m := newDubboAllocMesh(t, hops, clients, "http", dubboValue)
				want, post := []byte("\r\n\r\n-1234567890"), dubboForm()
				m.CheckAllocs(0, func() { m.Call(want, post) })
			})
			for name, as := range proxytest.Serializations {
				t.Run(fmt.Sprintf("%d hops/%d clients/%s", hops, clients, name), func(t *testing.T) {
					m := newDubboAllocMesh(t, hops, clients, "dubbo", dubboValue)
					call := proxytest.CallFrame(77, as.ID, as.Call("com.acme.Demo", "1.0", "g", "hash", strings.Repeat("x", 200)))
					res := dubboValue
					res.ID = 77
					want := dubbo.AppendFrame(nil, &res)
					m.CheckAllocs(0, func() { m.CallFrame(call, want) })
				})
			}
		}
	}
}
