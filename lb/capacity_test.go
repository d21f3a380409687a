package lb_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/racetest"
	"github.com/remora-proxy/remora/lb"
)

// byWeight picks the least load per weight with the configured weights.
type byWeight struct{}

func (byWeight) Choose(v *lb.View) *lb.Endpoint {
	best := v.Draw()
	least := math.Inf(1)
	if v.Eligible(best) {
		least = v.PerWeight(best)
	}
	for i := range v.Len() {
		if e := v.At(i); v.Eligible(e) && v.PerWeight(e) < least {
			best, least = e, v.PerWeight(e)
		}
	}
	return best
}

// unequal are replicas with capacities 1:2:3.
var unequal = []struct {
	name    string
	workers []int
	slow    []float64
	limited bool
	least   float64 // of the throughput with perfect weights
}{
	{"workers, max_concurrency", []int{4, 8, 12}, nil, true, 0.93},
	{"workers", []int{4, 8, 12}, nil, false, 0.92},
	{"speed", []int{8, 8, 8}, []float64{3, 1.5, 1}, false, 0.94},
}

// TestUnequalReplicas prints the table of docs/balancing.md, in brackets with the load
// alone. A number of requests is always in flight, in shares of the workers. Replicas
// without configured weights serve nearly as many as with perfect weights.
func TestUnequalReplicas(t *testing.T) {
	loads := []float64{0.6, 0.8, 0.95, 1, 1.2}
	seeds, duration, warmUp := uint64(3), 10*time.Second, 5*time.Second
	switch {
	case racetest.Enabled: // no races here, and it takes long
		loads, seeds, duration, warmUp = []float64{1}, 1, 8*time.Second, 5*time.Second
	case testing.Short():
		seeds = 1
	}
	for _, kind := range unequal {
		for _, loops := range []int{1, 3, 30} {
			var row strings.Builder
			for _, load := range loads {
				blind, perfect, plain := 0, 0, 0
				for seed := range seeds {
					c := herdConfig{
						loops: loops, replicas: 3, workers: kind.workers, slow: kind.slow, limited: kind.limited,
						service: 5 * time.Millisecond, closed: int(math.Round(24 * load)), duration: duration, warmUp: warmUp, seed: seed + 1,
					}
					blind += len(runHerd(c).waits)
					c.policy = byWeight{}
					plain += len(runHerd(c).waits)
					c.weights = []float64{1, 2, 3}
					perfect += len(runHerd(c).waits)
				}
				got, before := float64(blind)/float64(perfect), float64(plain)/float64(perfect)
				fmt.Fprintf(&row, " %.3f (%.3f)", got, before)
				if before > 0.93 && kind.slow == nil && load == 1 {
					t.Errorf("%s, %d loops: %.3f with the load alone, so the experiment has no effect", kind.name, loops, before)
				}
				if got < kind.least {
					t.Errorf("%s, %d loops, load %v: %.3f of the throughput with perfect weights", kind.name, loops, load, got)
				}
			}
			t.Logf("%-24s %2d loops: %s", kind.name, loops, row.String())
		}
	}
}
