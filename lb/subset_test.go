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

// TestHashOfVersions: sidecars of other versions choose the same subsets, and the same endpoints for a key.
func TestHashOfVersions(t *testing.T) {
	for x, want := range map[uint64]uint64{1: 0x5692161d100b05e5, 0xdeadbeef: 0x4e062702ec929eea, 1 << 63: 0x25c26ea579cea98a} {
		if got := mix(x); got != want {
			t.Errorf("mix of %#x: %#x, want %#x", x, got, want)
		}
	}
	for node, want := range map[string]uint64{"": 0x5eeff74b1ce51d18, "api-1": 0xe5830aa3c2032f50} {
		if got := hash(node, "10.0.0.1:15006"); got != want {
			t.Errorf("hash for the node %q: %#x, want %#x", node, got, want)
		}
	}
	for n, want := range map[int][]string{1: {"10.0.0.10:15006"}, 3: {"10.0.0.10:15006", "10.0.0.13:15006", "10.0.0.15:15006"}} {
		if got := subsetAddrs(replicas(20), n, "api-1"); !slices.Equal(got, want) {
			t.Errorf("a subset of %d: %q, want %q", n, got, want)
		}
	}
	heavy := replicas(20)
	heavy[7].Weight, heavy[8].Unhealthy, heavy[9].Unhealthy = 30, true, true
	if got := subsetAddrs(heavy, 19, "api-1"); len(got) != 19 || slices.Contains(got, heavy[8].Addr) == slices.Contains(got, heavy[9].Addr) {
		t.Errorf("of all but one, unhealthy ones come last: %q", got)
	}
	if got := subsetAddrs(heavy, 1, "api-1"); !slices.Equal(got, []string{heavy[7].Addr}) {
		t.Errorf("an endpoint with a large weight is not the first: %q", got)
	}
}
