package lb_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/racetest"
)

// scaleSeeds is the number of runs; each figure is the worst of them.
const scaleSeeds = 5

// A thousand consumers that receive the load of three replicas at different times do not
// herd: no replica has more than twice the mean pending for longer than 100 ms, whether
// the service takes 1 ms or 10.
func TestThousandOnThree(t *testing.T) {
	const most = 100 * time.Millisecond
	seeds := uint64(scaleSeeds)
	if racetest.Enabled {
		seeds = 1
	}
	for _, c := range []herdConfig{
		{service: time.Millisecond, workers: []int{4, 4, 4}},
		{service: 10 * time.Millisecond, workers: []int{12, 12, 12}},
	} {
		c.loops, c.replicas = 1000, 3
		for _, c.use = range []float64{0.5, 0.7, 0.9} {
			least, random := time.Duration(0), time.Duration(0)
			for c.seed = range seeds {
				c.policy = nil
				least = max(least, runHerd(c).longest)
				c.policy = drawn{}
				random = max(random, runHerd(c).longest)
			}
			t.Logf("%v, %v of the workers used: more than twice the mean for up to %v, at random %v", c.service, c.use, least, random)
			if least > most {
				t.Errorf("%v, %v of the workers used: more than twice the mean for %v", c.service, c.use, least)
			}
		}
	}
}

// TestMeshGrows prints the table of docs/balancing.md: as many consumers as replicas,
// each with all of them or a subset.
func TestMeshGrows(t *testing.T) {
	sizes, seeds := []int{10, 100, 1000}, uint64(scaleSeeds)
	if racetest.Enabled { // the race detector takes many times the memory
		sizes, seeds = []int{10, 100}, 1
	}
	for _, n := range sizes {
		for _, subset := range []int{0, 20} {
			if subset >= n {
				continue
			}
			busiest, p50, p99 := 0.0, time.Duration(0), time.Duration(0)
			for seed := range seeds {
				h := runHerd(herdConfig{
					loops: n, replicas: n, service: 10 * time.Millisecond, use: 0.7, duration: 1300 * time.Millisecond,
					subset: subset, seed: seed,
				})
				busiest = max(busiest, h.busiest())
				p50, p99 = max(p50, h.quantile(0.5)), max(p99, h.quantile(0.99))
			}
			t.Logf("%4d x %4d, subset %2d: busiest %.2f, p50 %v, p99 %v", n, n, subset, busiest, p50, p99)
			limit := 1.3
			if subset > 0 {
				limit = 1.6 // some replicas are in more subsets than others
			}
			if n > 10 && busiest > limit {
				t.Errorf("%d x %d, subset %d: the busiest serves %.2f times the mean in some second", n, n, subset, busiest)
			}
		}
	}
}
