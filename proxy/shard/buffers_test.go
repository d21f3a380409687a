package shard_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/remora-proxy/remora/proxy/proxytest"
)

// Long requests and responses use buffers that were used before. Idle loops release them.
func TestLongBodiesAllocateNothing(t *testing.T) {
	sizes := []int{128 << 10, 20 << 10, 300 << 10}
	if testing.Short() {
		sizes = sizes[:1]
	}
	for hops := 1; hops <= 2; hops++ {
		for _, size := range sizes {
			for _, chunked := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d hops/%d/chunked=%t", hops, size, chunked), func(t *testing.T) {
					request, response, body := proxytest.LongBodies(size, chunked)
					m := proxytest.NewAllocMesh(t, proxytest.AllocMeshOptions{Hops: hops, Clients: 2, Response: string(response)})
					end := body[len(body)-200:]
					if chunked {
						end = []byte("the end.")
					}
					m.CheckAllocs(0, func() { m.Call(end, request...) })
					m.CheckReleased()
				})
			}
		}
	}
}

// So does a hedged request, with the buffers of two attempts.
func TestHedgedLongBodiesAllocateNothing(t *testing.T) {
	request, response, body := proxytest.LongBodies(128<<10, false)
	m := proxytest.NewAllocMesh(t, proxytest.AllocMeshOptions{Hops: 2, Clients: 2, Response: string(response), Late: true,
		Service: "idempotent: true, hedge: {mode: on, delay: 5ms, budget: 1}"})
	m.CheckAllocs(0, func() { m.Call(body[len(body)-200:], request...) })
	m.CheckReleased()
}

// After a burst of long bodies the loop keeps no more buffers than the bound.
func TestKeptBuffersAreBounded(t *testing.T) {
	const buffered, share = 16 << 20, 8
	request, _, _ := proxytest.LongBodies(512<<10, false)
	m := proxytest.NewAllocMesh(t, proxytest.AllocMeshOptions{Hops: 1, Clients: 24, Response: proxytest.ShapeResponseHead + proxytest.ShapeBody,
		Top: "limits: {buffered: 16MiB}"})
	for range 3 {
		m.Call([]byte(proxytest.ShapeBody), request...)
		if n := m.Consumer.Kept(); n == 0 || n > buffered/share {
			t.Errorf("%d bytes kept, want at most %d", n, buffered/share)
		}
	}
}

// BenchmarkLong measures a long body through one sidecar or two, without the kernel.
func BenchmarkLong(b *testing.B) {
	for hops := 1; hops <= 2; hops++ {
		for _, size := range []int{300, 16 << 10, 64 << 10, 128 << 10, 512 << 10} {
			b.Run(fmt.Sprintf("%d hops/%d", hops, size), func(b *testing.B) {
				request, _, _ := proxytest.LongBodies(size, false)
				m := proxytest.NewAllocMesh(b, proxytest.AllocMeshOptions{Hops: hops, Clients: 8, Response: proxytest.ShapeResponseHead + proxytest.ShapeBody})
				m.Call([]byte(proxytest.ShapeBody), request...)
				runtime.GC()
				b.ReportAllocs()
				b.ResetTimer()
				for n := 0; n < b.N; n += len(m.Clients) {
					m.Call([]byte(proxytest.ShapeBody), request...)
				}
			})
		}
	}
}
