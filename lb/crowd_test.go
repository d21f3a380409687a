package lb_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb"
)

// A thousand consumers that hear of three replicas' load now and then, each at
// another moment, do not herd: no replica has more than twice the mean pending for
// longer than 100 ms, whether the service takes 1 ms or 10.
func TestThousandOnThree(t *testing.T) {
	const most = 100 * time.Millisecond
	for _, service := range []time.Duration{time.Millisecond, 10 * time.Millisecond} {
		for _, use := range []float64{0.5, 0.7, 0.9} {
			c := herdConfig{loops: 1000, replicas: 3, service: service, use: use}
			h := runHerd(c)
			t.Logf("%v, %v of the workers used: more than twice the mean for up to %v", service, use, h.longest)
			if h.longest > most {
				t.Errorf("%v, %v of the workers used: more than twice the mean for %v", service, use, h.longest)
			}
		}
	}
	c := herdConfig{loops: 1000, replicas: 3, service: 10 * time.Millisecond, use: 0.9, policy: drawn{}, duration: 5 * time.Second}
	if h := runHerd(c); h.longest <= most {
		t.Errorf("at random it is %v: the experiment shows nothing", h.longest)
	}
}

// The table of docs/balancing.md: as many consumers as replicas, each using all
// of them or a subset.
func TestMeshGrows(t *testing.T) {
	sizes := []int{10, 100, 1000}
	if lb.RaceEnabled { // which takes many times the memory
		sizes = []int{10, 100, 300}
	}
	for _, n := range sizes {
		for _, subset := range []int{0, 20} {
			if subset >= n {
				continue
			}
			h := runHerd(herdConfig{
				loops: n, replicas: n, service: 10 * time.Millisecond, use: 0.7, duration: 1300 * time.Millisecond, subset: subset,
			})
			t.Logf("%4d x %4d, subset %2d: %4d endpoints a loop, busiest %.2f, p50 %v, p99 %v", n, n, subset,
				h.sets[0].Len(), h.busiest(), h.quantile(0.5), h.quantile(0.99))
			limit := 1.3
			if subset > 0 {
				limit = 1.6 // some replicas are in more subsets than others
			}
			if n > 10 && h.busiest() > limit {
				t.Errorf("%d x %d, subset %d: the busiest serves %.2f times the mean in some second", n, n, subset, h.busiest())
			}
		}
	}
}

// Replicas of 2, 4 and 6 workers, of which the consumers know nothing: with
// requests enough to use them all, as many are served as with perfect weights.
func TestUnequalReplicas(t *testing.T) {
	for _, loops := range []int{1, 20} {
		for _, p := range []lb.Policy{lb.LeastPending{}, lb.PeakEWMA{}} {
			t.Run(fmt.Sprintf("%d loops, %T", loops, p), func(t *testing.T) {
				c := herdConfig{loops: loops, replicas: 3, workers: []int{2, 4, 6}, closed: 48, policy: p}
				blind := len(runHerd(c).waits)
				c.weights = []float64{1, 2, 3}
				perfect := len(runHerd(c).waits)
				t.Logf("served %d, with perfect weights %d", blind, perfect)
				if float64(blind) < 0.95*float64(perfect) {
					t.Errorf("served %d, with perfect weights %d", blind, perfect)
				}
				c.weights, c.policy = nil, drawn{}
				if random := len(runHerd(c).waits); float64(random) > 0.95*float64(perfect) {
					t.Errorf("at random %d are served: the experiment shows nothing", random)
				}
			})
		}
	}
}
