package http_test

import (
	"bytes"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"
	"weak"

	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/registry"
)

// withEndpoint makes a new endpoint the only one while f runs. It returns the memory of the endpoint's address, which every
// reference to the endpoint keeps.
func withEndpoint(m *proxytest.AllocMesh, host string, f func()) weak.Pointer[byte] {
	addr := strings.Clone(host + ".a-name-with-memory-of-its-own.example:15006")
	m.Net.Accept[addr] = m.Net.Accept["10.0.0.1:8080"]
	defer delete(m.Net.Accept, addr)
	m.Consumer.Update(registry.NewSnapshot("compute", registry.SourceLive, time.Time{}, []registry.Endpoint{{Addr: addr, Weight: 1}}))
	m.Net.Pump()
	m.Net.ForgetClosed()
	f()
	return weak.Make(unsafe.StringData(addr))
}

// TestRemovedEndpointReleased: nothing references an endpoint that was removed while its connection was idle.
func TestRemovedEndpointReleased(t *testing.T) {
	m := proxytest.NewAllocMesh(t, proxytest.AllocMeshOptions{Hops: 1, Clients: 1, Response: proxytest.ShapeResponseHead + proxytest.ShapeBody})
	call := func() { m.Call([]byte(proxytest.ShapeBody), []byte(proxytest.GetHead)) }
	first, last := withEndpoint(m, "a", call), withEndpoint(m, "b", call)
	runtime.GC()
	if first.Value() != nil {
		t.Error("the endpoint that was removed is still referenced")
	}
	if last.Value() == nil {
		t.Error("the remaining endpoint is not referenced: the test proves nothing")
	}
	runtime.KeepAlive(m)
}

// TestRemovedEndpointPresumed: nothing references an endpoint that was removed after it was presumed to work on requests that
// nobody awaited.
func TestRemovedEndpointPresumed(t *testing.T) {
	m := proxytest.NewAllocMesh(t, proxytest.AllocMeshOptions{
		Hops: 1, Clients: 2, Late: true, Response: proxytest.ShapeResponseHead + proxytest.ShapeBody,
		Service: "cancel: close", Route: "retry: {per_try_timeout: 100ms}",
	})
	call := func(clients int) func() {
		return func() {
			for _, c := range m.Clients[:clients] {
				c.Deliver([]byte(proxytest.GetHead))
			}
			m.Net.Pump()
			for range 60 { // until nothing is presumed any more
				m.Net.Advance(time.Second)
				m.Net.Pump()
			}
			for _, c := range m.Clients[:clients] {
				if !bytes.HasPrefix(c.Out, []byte("HTTP/1.1 504 ")) || c.Closed {
					t.Errorf("response %q, closed %t; want 504", c.Out, c.Closed)
				}
				c.Out = c.Out[:0]
			}
		}
	}
	first := withEndpoint(m, "a", call(2))
	withEndpoint(m, "b", call(1)) // one of the two exchanges is not used again
	last := withEndpoint(m, "c", call(1))
	if n := m.Consumer.Workers()[0].Report(stats.Counters).Services[0].Stats.UnwantedClosed; n < 4 {
		t.Errorf("%d connections were closed as nobody awaited their requests, want at least 4", n)
	}
	m.Net.ForgetClosed()
	runtime.GC()
	if first.Value() != nil {
		t.Error("the endpoint that was removed is still referenced")
	}
	if last.Value() == nil {
		t.Error("the remaining endpoint is not referenced: the test proves nothing")
	}
	runtime.KeepAlive(m)
}
