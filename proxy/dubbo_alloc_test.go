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

// nullDubboApp is a provider's end of a connection, which gives every call the
// same answer.
type nullDubboApp struct {
	mesh *proxytest.AllocMesh
	conn loop.Conn
	ans  dubbo.Frame
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
		a.ans.ID = f.ID
		a.out = dubbo.AppendFrame(a.out, &a.ans)
	}
	a.conn.Write(a.out)
}

// newDubboAllocMesh is an AllocMesh whose consumer's sidecar listens for listener,
// with three Dubbo providers.
func newDubboAllocMesh(t testing.TB, hops, clients int, listener string, ans dubbo.Frame) *proxytest.AllocMesh {
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
		m.Net.Accept[app] = func() (*proxytest.NullLoop, loop.Stream) { return l, &nullDubboApp{mesh: m, ans: ans} }
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

// keepBuffers has the pool of buffers, which keeps those of sizes that it saw often
// of late, keep those of this test, whatever the tests before it used.
func keepBuffers() {
	const calibrates = 42_001 // bytebufferpool, after so many of a size
	for range 3 * calibrates {
		b := bytebufferpool.Get()
		_, _ = b.Write(make([]byte, 1000))
		bytebufferpool.Put(b)
	}
}

// TestAllocationsPerDubboCall: a form call's whole way to a Dubbo provider and
// back allocates nothing, and neither does a call that is Dubbo already.
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
					ans := dubboValue
					ans.ID = 77
					want := dubbo.AppendFrame(nil, &ans)
					m.CheckAllocs(0, func() { m.CallFrame(call, want) })
				})
			}
		}
	}
}
