package exchange_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"
	"weak"

	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/registry"
)

// TestRemovedEndpointsReleased: free lists and queues that a burst has made long do not
// reference a removed endpoint, even with little traffic afterwards. The test watches the
// memory of the endpoint's address, which every reference to the endpoint keeps.
func TestRemovedEndpointsReleased(t *testing.T) {
	for _, hops := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d hops", hops), func(t *testing.T) {
			m := proxytest.NewAllocMesh(t, proxytest.AllocMeshOptions{Hops: hops, Clients: 32, Response: proxytest.ShapeResponseHead + proxytest.ShapeBody})
			accept := m.Net.Accept[map[int]string{1: "10.0.0.1:8080", 2: "10.0.0.1:15006"}[hops]]
			all := m.Clients
			burst := func(host string, clients int) weak.Pointer[byte] {
				addr := strings.Clone(host + ".a-name-with-memory-of-its-own.example:15006")
				m.Net.Accept[addr] = accept
				defer delete(m.Net.Accept, addr)
				m.Consumer.Update(registry.NewSnapshot("compute", registry.SourceLive, time.Time{}, []registry.Endpoint{{Addr: addr, Weight: 1}}))
				m.Net.Pump()
				m.Net.ForgetClosed()
				m.Clients = all[:clients]
				m.Call([]byte(proxytest.ShapeBody), []byte(proxytest.GetHead))
				return weak.Make(unsafe.StringData(addr))
			}
			former := []weak.Pointer[byte]{burst("a", 32), burst("b", 16), burst("c", 8)}
			last := burst("d", 1)
			for range 3 {
				m.Call([]byte(proxytest.ShapeBody), []byte(proxytest.GetHead))
			}
			runtime.GC()
			for i, addr := range former {
				if addr.Value() != nil {
					t.Errorf("endpoint %d of 4 was removed and is still referenced", i+1)
				}
			}
			if last.Value() == nil {
				t.Error("the remaining endpoint is not referenced: the test proves nothing")
			}
			runtime.KeepAlive(m)
		})
	}
}
