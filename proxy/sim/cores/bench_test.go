package cores

import (
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkChange measures Costs.Change on two cores of this machine: they change a counter in turn. The tenth percentile of many
// bursts is that of a burst in which both had a core.
func BenchmarkChange(b *testing.B) {
	if runtime.GOMAXPROCS(0) < 2 {
		b.Skip("needs two cores")
	}
	const burst = 1000
	var n atomic.Int64
	var ended atomic.Bool
	defer ended.Store(true)
	go func() {
		for !ended.Load() {
			if v := n.Load(); v%2 == 1 {
				n.CompareAndSwap(v, v+1)
			}
		}
	}()
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		for until := n.Load() + burst; n.Load() < until; {
			if v := n.Load(); v%2 == 0 {
				n.CompareAndSwap(v, v+1)
			}
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/10].Nanoseconds())/burst, "ns/change")
}
