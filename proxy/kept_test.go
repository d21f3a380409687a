package proxy_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"
	"weak"

	"github.com/remora-proxy/remora/registry"
)

// TestFormerEndpointsAreNotKept: free lists and queues that a burst has made long
// keep nothing of an endpoint that has left, however little traffic follows. An
// endpoint, and whoever has a way to it, keeps its address.
func TestFormerEndpointsAreNotKept(t *testing.T) {
	for _, hops := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d hops", hops), func(t *testing.T) {
			m := newAllocMesh(t, allocMeshOptions{hops: hops, clients: 32, answer: shapeAnswerHead + shapeAnswer})
			accept := m.net.accept[map[int]string{1: "10.0.0.1:8080", 2: "10.0.0.1:15006"}[hops]]
			all := m.clients
			burst := func(host string, clients int) weak.Pointer[byte] {
				addr := strings.Clone(host + ".a-name-with-memory-of-its-own.example:15006")
				m.net.accept[addr] = accept
				defer delete(m.net.accept, addr)
				m.consumer.Update(registry.NewSnapshot("compute", registry.SourceLive, time.Time{}, []registry.Endpoint{{Addr: addr, Weight: 1}}))
				m.net.pump()
				m.net.hangUp()
				m.clients = all[:clients]
				m.call([]byte(shapeAnswer), []byte(getHead))
				return weak.Make(unsafe.StringData(addr))
			}
			former := []weak.Pointer[byte]{burst("a", 32), burst("b", 16), burst("c", 8)}
			last := burst("d", 1)
			for range 3 {
				m.call([]byte(shapeAnswer), []byte(getHead))
			}
			runtime.GC()
			for i, addr := range former {
				if addr.Value() != nil {
					t.Errorf("endpoint %d of 4 has left and is kept", i+1)
				}
			}
			if last.Value() == nil {
				t.Error("the endpoint that stays is not kept: this sees nothing")
			}
			runtime.KeepAlive(m)
		})
	}
}

// hangUp forgets the connections that an end has closed, as a driver does.
func (n *nullNet) hangUp() {
	var gone []*nullConn
	n.conns = slices.DeleteFunc(n.conns, func(c *nullConn) bool {
		ended := c.closed || c.peer != nil && c.peer.closed
		if ended {
			gone = append(gone, c)
		}
		return ended
	})
	for _, c := range gone {
		c.peer = nil
	}
	n.dialed = nil
}
