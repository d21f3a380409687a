package http_test

import (
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"
	"weak"

	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/registry"
)

// TestRemovedEndpointReleased: nothing references an endpoint that was removed while its connection was idle. The test watches the
// memory of the endpoint's address, which every reference to the endpoint keeps.
func TestRemovedEndpointReleased(t *testing.T) {
	m := proxytest.NewAllocMesh(t, proxytest.AllocMeshOptions{Hops: 1, Clients: 1, Response: proxytest.ShapeResponseHead + proxytest.ShapeBody})
	accept := m.Net.Accept["10.0.0.1:8080"]
	call := func(host string) weak.Pointer[byte] {
		addr := strings.Clone(host + ".a-name-with-memory-of-its-own.example:15006")
		m.Net.Accept[addr] = accept
		defer delete(m.Net.Accept, addr)
		m.Consumer.Update(registry.NewSnapshot("compute", registry.SourceLive, time.Time{}, []registry.Endpoint{{Addr: addr, Weight: 1}}))
		m.Net.Pump()
		m.Net.ForgetClosed()
		m.Call([]byte(proxytest.ShapeBody), []byte(proxytest.GetHead))
		return weak.Make(unsafe.StringData(addr))
	}
	first, last := call("a"), call("b")
	runtime.GC()
	if first.Value() != nil {
		t.Error("the endpoint that was removed is still referenced")
	}
	if last.Value() == nil {
		t.Error("the remaining endpoint is not referenced: the test proves nothing")
	}
	runtime.KeepAlive(m)
}
