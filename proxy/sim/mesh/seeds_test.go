package mesh

import (
	"flag"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/racetest"
)

// Flags of TestRandomMeshes. scripts/sim.sh runs it with 10,000 seeds.
var (
	seedCount = flag.Uint64("seeds", 0, "TestRandomMeshes: how many seeds to run; 0 means the default of go test")
	firstSeed = flag.Uint64("from", 0, "TestRandomMeshes: the first seed")
	oneSeed   = flag.Int64("seed", -1, "TestRandomMeshes: run this seed alone; with -v, log its script and counts")
)

// TestRandomMeshes runs random meshes, one for each seed, and checks the invariants of
// each run.
func TestRandomMeshes(t *testing.T) {
	if *oneSeed >= 0 {
		replaySeed(t, uint64(*oneSeed))
		return
	}
	n := *seedCount
	switch {
	case n > 0:
	case testing.Short() || racetest.Enabled:
		n = 60
	default:
		n = 300
	}
	began := time.Now()
	failed, requests := runSeeds(t, *firstSeed, n)
	if *seedCount > 0 {
		fmt.Printf("%d seeds from %d, %d requests, in %.1fs: %d failed\n", n, *firstSeed, requests, time.Since(began).Seconds(), len(failed))
	}
	if len(failed) > 0 {
		t.Errorf("failing seeds: %d; run one again with: go test ./proxy/sim/mesh -run TestRandomMeshes -v -seed %d", failed, failed[0])
	}
}

// runSeeds runs n seeds on all cores. It returns the failed seeds in order, and the number
// of requests of all runs.
func runSeeds(t *testing.T, from, n uint64) (failed []uint64, requests int) {
	var next atomic.Uint64
	var mu sync.Mutex
	var all sync.WaitGroup
	for range runtime.NumCPU() {
		all.Go(func() {
			for i := next.Add(1) - 1; i < n; i = next.Add(1) - 1 {
				result := runSeed(from + i)
				mu.Lock()
				requests += len(result.Requests)
				if len(result.Violations) > 0 {
					failed = append(failed, from+i)
				}
				for _, wrong := range result.Violations {
					t.Error(wrong)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	slices.Sort(failed)
	return failed, requests
}

// runSeed runs the mesh of one seed. A panic of the product is a violation too.
func runSeed(seed uint64) (result *Result) {
	defer func() {
		if p := recover(); p != nil {
			result = &Result{Violations: []string{fmt.Sprintf("seed %d: panic: %v", seed, p)}}
		}
	}()
	spec := Random(seed)
	if err := spec.Validate(); err != nil {
		return &Result{Violations: []string{fmt.Sprintf("seed %d: %v", seed, err)}}
	}
	return Run(spec)
}

// replaySeed runs one seed and logs it. It lets a panic end the test, to show its stack.
func replaySeed(t *testing.T, seed uint64) {
	spec := Random(seed)
	t.Logf("the script:\n%s", spec.String())
	r := Run(spec)
	t.Logf("%d requests, p50 %v, p99 %v; %d hedges (%d won, %d missed), %d retries, extra load %.1f%%, gates %v",
		len(r.Requests), r.Quantile(.5), r.Quantile(.99), r.Hedges, r.HedgesWon, r.HedgesMissed, r.Retries, 100*r.ExtraLoad(), r.Gates)
	t.Logf("seed %d: hash %016x, %d violations", seed, r.Hash, len(r.Violations))
	for _, wrong := range r.Violations {
		t.Error(wrong)
	}
}
