package lb

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func replicas(n int) []Target {
	out := make([]Target, n)
	for i := range out {
		out[i] = Target{Addr: fmt.Sprintf("10.0.%d.%d:15006", i/256, i%256), Weight: 1}
	}
	return out
}

func subsetAddrs(targets []Target, n int, node string) []string {
	var out []string
	for _, t := range Subset(targets, n, node) {
		out = append(out, t.Addr)
	}
	slices.Sort(out)
	return out
}

func TestSubset(t *testing.T) {
	targets := replicas(50)
	for _, n := range []int{-1, 0, 50, 51} {
		if got := Subset(targets, n, "api-1"); !slices.Equal(got, targets) {
			t.Errorf("subset %d has %d of 50, or another order", n, len(got))
		}
	}
	if got := len(Subset(targets, 1, "api-1")); got != 1 {
		t.Errorf("subset 1 has %d", got)
	}
	want := subsetAddrs(targets, 10, "api-1")
	if len(want) != 10 {
		t.Fatalf("subset 10 has %d", len(want))
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(targets), func(i, j int) { targets[i], targets[j] = targets[j], targets[i] })
	if got := subsetAddrs(targets, 10, "api-1"); !slices.Equal(got, want) {
		t.Error("the order of the targets matters")
	}
	if got := subsetAddrs(targets, 10, "api-2"); slices.Equal(got, want) {
		t.Error("two nodes have the same subset")
	}
}

// TestSubsetChurn checks that adding or removing one target changes at most one place
// of a subset, and only of those that contain it.
func TestSubsetChurn(t *testing.T) {
	targets := replicas(100)
	for node := range 200 {
		name := fmt.Sprintf("api-%d", node)
		with, without := subsetAddrs(targets, 10, name), subsetAddrs(targets[1:], 10, name)
		kept := 0
		for _, addr := range with {
			if slices.Contains(without, addr) {
				kept++
			}
		}
		want := 10
		if slices.Contains(with, targets[0].Addr) {
			want = 9
		}
		if kept != want {
			t.Fatalf("%s keeps %d of 10, want %d", name, kept, want)
		}
	}
}

// TestSubsetSpread checks that targets are in as many subsets as their weight demands.
func TestSubsetSpread(t *testing.T) {
	const nodes, n = 2000, 20
	targets := replicas(200)
	for i := range targets {
		targets[i].Weight = float64(1 + i%2)
	}
	used := map[string]int{}
	for node := range nodes {
		for _, addr := range subsetAddrs(targets, n, fmt.Sprintf("api-%d", node)) {
			used[addr]++
		}
	}
	for _, target := range targets {
		want := nodes * n * target.Weight / 300
		if got := float64(used[target.Addr]); math.Abs(got-want) > 5*math.Sqrt(want) {
			t.Errorf("%s of weight %v is in %v subsets, want about %.0f", target.Addr, target.Weight, got, want)
		}
	}
}

// TestSubsetHealth checks that the next targets in rank replace unhealthy ones, which
// return to their place later.
func TestSubsetHealth(t *testing.T) {
	targets := replicas(30)
	before := subsetAddrs(targets, 10, "api-1")
	sick := slices.IndexFunc(targets, func(t Target) bool { return t.Addr == before[0] })
	targets[sick].Unhealthy = true
	after := subsetAddrs(targets, 10, "api-1")
	if slices.Contains(after, before[0]) || len(after) != 10 {
		t.Errorf("with %s unhealthy: %v", before[0], after)
	}
	for i := range targets {
		targets[i].Unhealthy = true
	}
	if got := subsetAddrs(targets, 10, "api-1"); !slices.Equal(got, before) {
		t.Error("the subset with all targets unhealthy differs from that with none")
	}
}
