// Command seeds runs random meshes on the simulator, one a seed, and checks what
// must hold in every run (package proxy/sim/mesh). It uses all cores, prints how
// many runs there were, how long they took and which failed, and exits 1 if any
// did.
//
//	go run ./scripts/seeds -n 10000          seeds 0 to 9,999
//	go run ./scripts/seeds -from 70000       others
//	go run ./scripts/seeds -seed 4711 -v     one again, with its script and counts
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy/sim/mesh"
)

func main() {
	n := flag.Uint64("n", 10_000, "how many seeds to run")
	from := flag.Uint64("from", 0, "the first seed")
	seed := flag.Int64("seed", -1, "run this seed alone")
	verbose := flag.Bool("v", false, "with -seed: print the mesh as a script, and what came of it")
	flag.Parse()
	if *seed >= 0 {
		if !replay(uint64(*seed), *verbose) {
			os.Exit(1)
		}
		return
	}
	began := time.Now()
	failed, requests := runAll(*from, *n)
	fmt.Printf("%d seeds from %d, %d requests, in %.1fs: %d failed\n", *n, *from, requests, time.Since(began).Seconds(), len(failed))
	if len(failed) > 0 {
		fmt.Println("failing seeds:", failed)
		os.Exit(1)
	}
}

// runAll runs n seeds on all cores, and returns those that failed.
func runAll(from, n uint64) (failed []uint64, requests int) {
	var next atomic.Uint64
	var mu sync.Mutex
	var all sync.WaitGroup
	for range runtime.NumCPU() {
		all.Go(func() {
			for i := next.Add(1) - 1; i < n; i = next.Add(1) - 1 {
				result := run(from + i)
				mu.Lock()
				requests += len(result.Requests)
				if len(result.Violations) > 0 {
					failed = append(failed, from+i)
					fmt.Printf("seed %d failed:\n", from+i)
					print(result.Violations)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	slices.Sort(failed)
	return failed, requests
}

// run runs the mesh of one seed. A panic of the product is a violation too.
func run(seed uint64) (result *mesh.Result) {
	defer func() {
		if p := recover(); p != nil {
			result = &mesh.Result{Violations: []string{fmt.Sprintf("seed %d: panic: %v", seed, p)}}
		}
	}()
	return mesh.Run(mesh.Random(seed))
}

func print(violations []string) {
	for _, wrong := range violations {
		fmt.Println("  " + wrong)
	}
}

// replay runs one seed; a panic is not caught, to show where it came from.
func replay(seed uint64, verbose bool) (clean bool) {
	spec := mesh.Random(seed)
	if verbose {
		fmt.Print(spec.String(), "\n")
	}
	r := mesh.Run(spec)
	if verbose {
		fmt.Printf("%d requests, p50 %v, p99 %v; %d hedges (%d won, %d missed), %d retries, extra load %.1f%%, gates %v\n",
			len(r.Requests), r.Quantile(.5), r.Quantile(.99), r.Hedges, r.HedgesWon, r.HedgesMissed, r.Retries, 100*r.ExtraLoad(), r.Gates)
	}
	fmt.Printf("seed %d: hash %016x, %d violations\n", seed, r.Hash, len(r.Violations))
	print(r.Violations)
	return len(r.Violations) == 0
}
