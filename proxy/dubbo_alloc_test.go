package proxy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

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
				m := proxytest.NewDubboAllocMesh(t, hops, clients, "http", dubboValue)
				want, post := []byte("\r\n\r\n-1234567890"), dubboForm()
				m.CheckAllocs(0, func() { m.Call(want, post) })
			})
			for name, as := range proxytest.Serializations {
				t.Run(fmt.Sprintf("%d hops/%d clients/%s", hops, clients, name), func(t *testing.T) {
					m := proxytest.NewDubboAllocMesh(t, hops, clients, "dubbo", dubboValue)
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
