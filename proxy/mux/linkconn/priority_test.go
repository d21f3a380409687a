package linkconn_test

import (
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/sim"
)

// TestBatchBurst: bursts of large responses take 80% of the bandwidth between two sidecars. Small
// responses on the same link wait for at most half of a window of a burst, if it is batch.
func TestBatchBurst(t *testing.T) {
	const (
		bandwidth = 12_500_000 // bytes per second
		every     = 60 * time.Millisecond
		bursts    = 10
		parts     = 60
		size      = bandwidth * 8 / 10 * int(every) / int(time.Second) / parts // fits one frame
		half      = 128 << 10                                                  // of the window
	)
	slowest := map[string]time.Duration{}
	for _, priority := range []string{"online", "batch"} {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
		m.W.Net.SetPaths(func(from, to string) sim.Path {
			p := sim.DefaultPaths(from, to)
			if from == "10.0.1.1" && to == "10.0.0.1" {
				p.Bandwidth = bandwidth
			}
			return p
		})
		m.Apps[0].Body = func(req *protocol.Request) []byte {
			if len(req.Body) == 1 {
				return make([]byte, size)
			}
			return nil
		}
		var large, small []*proxytest.Call
		for range bursts {
			for i := range every / time.Millisecond {
				if i == 0 {
					for range parts {
						k := m.Post(1, "x-remora-priority: "+priority)
						m.Do(k)
						large = append(large, k)
					}
				}
				k := m.Post(10)
				m.Do(k)
				small = append(small, k)
				m.W.Run(time.Millisecond)
			}
		}
		m.OK(append(large, small...)...)
		m.Settled()
		slowest[priority] = slices.MaxFunc(small, func(a, b *proxytest.Call) int { return int(a.Took - b.Took) }).Took
	}
	t.Logf("slowest small response: %v", slowest)
	if most := half*time.Second/bandwidth + 5*time.Millisecond; slowest["batch"] > most || slowest["online"] < 2*most {
		t.Errorf("slowest small response: %v; want %v beside batch, and far more beside online", slowest, most)
	}
}
