// Package cost holds the guard of what a request costs: the instructions of its way
// through the core and the codecs, and the system calls and allocations of a consumer's
// and a provider's sidecar under load. scripts/cost.sh and scripts/pgo.sh run it.
package cost

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// bin is the directory of the programs: remora, remora-lab, and test binaries of ./proxy.
var bin = os.Getenv("BIN")

// noise is a number of system calls per request. Fewer, of those without a limit, belong
// to the opening of connections.
const noise = 0.1

// leastSaved is a share of instructions. When the profile saves less, it is time for a
// new one, which saves about 7%.
const leastSaved = 0.02

// mostShadow is the share of instructions that shadow mode, the default, may add to a request that
// may be hedged. Most of a request's CPU time is the kernel's: of the whole it is less than half.
// What shadow mode does for each request, and not for a share of them, is far above it.
const mostShadow = 0.02

// TestCost compares all counts with scripts/cost.limits, and shadow mode with no hedging.
func TestCost(t *testing.T) {
	needPrograms(t)
	l := readLimits(t)
	t.Run("shadow", func(t *testing.T) {
		const off, shadow = "1_hop/GET,_hedging_off", "1_hop/GET"
		for range 5 { // the result varies by some per cent from run to run: the least counts
			found := countInstructions(t, "core", []string{off, shadow})
			added := found[shadow]/found[off] - 1
			t.Logf("%-20s %8.0f  with hedging off %8.0f  %+.1f%%", shadow, found[shadow], found[off], 100*added)
			if added <= mostShadow {
				return
			}
		}
		t.Errorf("shadow mode adds more than %.0f%%", 100*mostShadow)
	})
	t.Run("core", func(t *testing.T) {
		found := countInstructions(t, "core", l.shapes())
		for range 2 { // as above
			risen := l.risen(found)
			if len(risen) == 0 {
				break
			}
			for shape, n := range countInstructions(t, "core", risen) {
				found[shape] = min(found[shape], n)
			}
		}
		l.checkCore(t, found)
	})
	for _, chain := range [][]string{{"single"}, {"consumer", "provider"}} {
		for _, connections := range []int{64, 1} {
			t.Run(fmt.Sprintf("%s, connections: %d", strings.Join(chain, " and "), connections), func(t *testing.T) {
				l.checkSidecars(t, chain, connections)
			})
		}
	}
}

// TestProfile fails if cmd/remora/default.pgo saves next to nothing. The binaries are of
// the core without the profile and with it.
func TestProfile(t *testing.T) {
	needPrograms(t)
	shapes := readLimits(t).shapes()
	without, with := countInstructions(t, "without", shapes), countInstructions(t, "with", shapes)
	saved := 0.0
	for _, shape := range shapes {
		share := 1 - with[shape]/without[shape]
		t.Logf("%-20s %8.0f  %8.0f  %+.1f%%", shape, without[shape], with[shape], -100*share)
		saved += share / float64(len(shapes))
	}
	if saved < leastSaved {
		t.Errorf("the profile saves %.1f%%: make a new one with scripts/pgo.sh", 100*saved)
	}
}

func needPrograms(t *testing.T) {
	if bin == "" {
		t.Skip("BIN is not set: scripts/cost.sh and scripts/pgo.sh build the programs")
	}
}

// counts are numbers per request, by what is counted.
type counts map[string]float64

// limits are the highest allowed counts, by "core" or "SIDECAR CONNECTIONS".
type limits map[string]counts

// readLimits reads scripts/cost.limits: lines of SIDECAR CONNECTIONS WHAT MOST, or of
// core SHAPE INSTRUCTIONS.
func readLimits(t *testing.T) limits {
	t.Helper()
	file := filepath.Join("..", "..", "scripts", "cost.limits")
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	l := limits{}
	for lines, n := bufio.NewScanner(f), 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		most, err := strconv.ParseFloat(words[len(words)-1], 64)
		if want := map[bool]int{true: 3, false: 4}[words[0] == "core"]; len(words) != want || err != nil {
			t.Fatalf("%s:%d: want SIDECAR CONNECTIONS WHAT MOST, or core SHAPE INSTRUCTIONS", file, n)
		}
		key, what := strings.Join(words[:len(words)-2], " "), words[len(words)-2]
		if l[key] == nil {
			l[key] = counts{}
		}
		l[key][what] = most
	}
	return l
}

// shapes returns the shapes of requests whose instructions have a limit.
func (l limits) shapes() []string { return slices.Sorted(maps.Keys(l["core"])) }

// risen returns the shapes that take more instructions than their limits and slack.
func (l limits) risen(found counts) []string {
	return slices.DeleteFunc(l.shapes(), func(shape string) bool { return found[shape] <= l["core"][shape]*(1+slack) })
}

// checkCore fails for each shape that takes more instructions than its limit and slack.
func (l limits) checkCore(t *testing.T, found counts) {
	for _, shape := range l.shapes() {
		listed := l["core"][shape]
		change := found[shape]/listed - 1
		line := fmt.Sprintf("%-20s %8.0f  in the list %8.0f  %+.1f%%", shape, found[shape], listed, 100*change)
		switch {
		case change > slack:
			t.Error(line + "  RISEN: if that is meant, change scripts/cost.limits")
		case change < -slack:
			t.Log(line + "  fallen: lower it in the list")
		default:
			t.Log(line)
		}
	}
}

// checkSidecars fails for each count of a chain that is above its limit. A disturbance of
// the machine only adds to a count, so the chain is measured again if one is too high: a
// cost that has risen is too high each time.
func (l limits) checkSidecars(t *testing.T, chain []string, connections int) {
	const tries = 3
	var risen []string
	for i := range tries {
		risen = nil
		t.Run(fmt.Sprintf("try %d", i+1), func(t *testing.T) { // its processes end with it
			found := measure(t, chain, connections)
			for _, sidecar := range chain {
				risen = append(risen, l.compare(t, fmt.Sprintf("%s %d", sidecar, connections), found[sidecar])...)
			}
		})
		if t.Failed() || len(risen) == 0 {
			return
		}
	}
	t.Errorf("risen: %s; if that is meant, change scripts/cost.limits", strings.Join(risen, ", "))
}

// compare returns what is above the limits of a sidecar, or is no longer counted.
func (l limits) compare(t *testing.T, sidecar string, found counts) (risen []string) {
	for what := range l[sidecar] {
		if _, counted := found[what]; !counted {
			risen = append(risen, fmt.Sprintf("%s %s (no longer counted)", sidecar, what))
		}
	}
	for _, what := range slices.Sorted(maps.Keys(found)) {
		most, listed := l[sidecar][what]
		if !listed {
			most = noise
		}
		if listed || found[what] > most {
			t.Logf("%-12s %-18s %7.3f  at most %g", sidecar, what, found[what], most)
		}
		if found[what] > most {
			risen = append(risen, sidecar+" "+what)
		}
	}
	return risen
}
