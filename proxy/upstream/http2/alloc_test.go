package http2_test

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

// newAllocMesh returns a mesh with so many clients, whose applications respond over HTTP/2 with proxytest.ShapeBody.
func newAllocMesh(t *testing.T, clients int) *proxytest.AllocMesh {
	head := string(proxytest.Frame(proxytest.FrameHeaders, proxytest.FlagEndHeaders, "\x88")) // status 200
	response := []byte(head + string(proxytest.Frame(proxytest.FrameData, proxytest.FlagEnd, proxytest.ShapeBody)))
	return proxytest.NewAllocMesh(t, proxytest.AllocMeshOptions{Hops: 1, Clients: clients, Speaks: "http2",
		Frames: proxytest.Frames{First: response, Later: response}})
}

// TestAllocations: a request and its response allocate nothing.
func TestAllocations(t *testing.T) {
	m := newAllocMesh(t, 4)
	want, request := []byte(proxytest.ShapeBody), []byte(proxytest.GetHead)
	m.CheckAllocs(0, func() { m.Call(want, request) })
}

// TestRemovedEndpointReleased: nothing references an endpoint that was removed while its connection was idle. The test watches the
// memory of the endpoint's address, which every reference to the endpoint keeps.
func TestRemovedEndpointReleased(t *testing.T) {
	m := newAllocMesh(t, 4)
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
	m.Net.Advance(time.Second) // timers that have no use any more
	m.Net.Pump()
	runtime.GC()
	if first.Value() != nil {
		t.Error("the endpoint that was removed is still referenced")
	}
	if last.Value() == nil {
		t.Error("the remaining endpoint is not referenced: the test proves nothing")
	}
	runtime.KeepAlive(m)
}
