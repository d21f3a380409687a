package mesh

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

const stallDeadline = 200 * time.Millisecond

// TestStallsBeyondDeadline: where applications stall for the requests' deadline, or for longer, each by itself, hedges do no
// harm.
func TestStallsBeyondDeadline(t *testing.T) {
	parts, bases := []int{1, 5}, []string{"load 600/s for 60s\nthreads 64\n", "load 1300/s for 40s\nthreads 1\n"}
	if testing.Short() {
		parts, bases = parts[1:], bases[:1]
	}
	for _, part := range parts {
		for i, base := range bases {
			for _, direct := range []string{"", "direct\n"} {
				stall := time.Duration(part) * stallDeadline
				script := direct + base + stallHead + fmt.Sprintf("stalls every %v for %v\n", 10*stall+2*time.Second, stall)
				seeds := 1 + 3*i // with one thread, the P99 of a single run varies by 10%
				compareWithOff(t, fmt.Sprintf("stalls of %v: %q", stall, direct+base), 1.05,
					runWith(t, seeds, script+hedgeOn), runWith(t, seeds, script+hedgeOff))
			}
		}
	}
}

// TestCommonStalls: where all applications stall together, for the requests' deadline or for longer, hedges gain nothing, so
// hardly any is sent after ten seconds. The requests that end at their deadline are no reason for hedges.
func TestCommonStalls(t *testing.T) {
	parts, lengths, seeds := []int{1, 2, 5}, []string{"60s", "40s"}, 4
	if testing.Short() {
		parts, lengths, seeds = parts[2:], lengths[:1], 2
	}
	for _, part := range parts {
		for _, length := range lengths {
			for _, direct := range []string{"", "direct\n"} {
				for seed := range seeds {
					stall := time.Duration(part) * stallDeadline
					script := fmt.Sprintf("%sseed %d\nthreads 64\nload 600/s for %s\n", direct, seed+1, length) + stallHead + commonStalls(stall)
					on := runScript(t, script+hedgeOn)
					name := fmt.Sprintf("stalls of %v together, for %s, seed %d, %q", stall, length, seed+1, direct)
					compareWithOff(t, name, 1.03, on, runScript(t, script+hedgeOff))
					early := runScript(t, script+hedgeOn+"load 600/s for 10s\n")
					share := float64(on.Hedges-early.Hedges) / float64(on.Primaries-early.Primaries)
					t.Logf("%s: %.2f%% are hedged", name, 100*share)
					if share > .003 {
						t.Errorf("%s: %.2f%% of the requests were hedged, want at most 0.3%%, gates %v", name, 100*share, on.Gates)
					}
				}
			}
		}
	}
}

const (
	stallHead = "warmup 5s\nconsumer idempotent: true\nconsumer timeout: 200ms\n"
	hedgeOff  = "consumer hedge: {mode: off}\n"
	hedgeOn   = "consumer hedge: {mode: on}\n"
)

// commonStalls returns the lines of stalls of all applications, at random times.
func commonStalls(stall time.Duration) string {
	var script strings.Builder
	rnd, every := rand.New(rand.NewPCG(1, 2)), 10*stall+2*time.Second
	for at := 6 * time.Second; at < 38*time.Second; at += stall + time.Duration(rnd.ExpFloat64()*float64(every)) {
		for provider := 1; provider <= 3; provider++ {
			fmt.Fprintf(&script, "at %v stall provider %d for %v\n", at.Round(time.Millisecond), provider, stall)
		}
	}
	return script.String()
}

// compareWithOff checks that the quantiles are at most so many times those without hedges, and that no more requests fail.
func compareWithOff(t *testing.T, name string, most float64, on, off *Result) {
	t.Helper()
	t.Logf("%s: failed %.2f%% of %.2f%%", name, 100*on.failed(), 100*off.failed())
	for _, q := range []float64{.99, .999} {
		with, without := quantile(on.took(stallDeadline), q), quantile(off.took(stallDeadline), q)
		t.Logf("%s: the %v-quantile is %v, %v without hedges", name, q, with, without)
		if float64(with) > most*float64(without) {
			t.Errorf("%s: the %v-quantile is %v, %v without hedges", name, q, with, without)
		}
	}
	if on.failed() > 1.05*off.failed()+.0005 {
		t.Errorf("%s: %.2f%% of the requests fail, %.2f%% without hedges", name, 100*on.failed(), 100*off.failed())
	}
}

// runWith runs a script with so many seeds, and returns all that came of it.
func runWith(t *testing.T, seeds int, script string) *Result {
	t.Helper()
	all := runScript(t, script)
	for seed := 2; seed <= seeds; seed++ {
		r := runScript(t, fmt.Sprintf("seed %d\n%s", seed, script))
		all.Requests = append(all.Requests, r.Requests...)
		all.Hedges += r.Hedges
		all.Primaries += r.Primaries
	}
	return all
}

// failed returns the share of the requests without a response of status 200.
func (r *Result) failed() float64 {
	return 1 - float64(len(Latencies(r.Requests)))/float64(len(r.Requests))
}

// took returns the sorted latencies of all requests. Those that fail take as long as the deadline.
func (r *Result) took(deadline time.Duration) []time.Duration {
	took := Latencies(r.Requests)
	return append(took, slices.Repeat([]time.Duration{max(deadline, quantile(took, 1))}, len(r.Requests)-len(took))...)
}
