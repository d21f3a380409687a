package mesh

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// TestTogether: where all applications freeze at the same moments, at random times, hedges gain nothing, so hardly any is
// sent after ten seconds. Where requests are few, many freezes find an application idle, and a caller learns that it is frozen
// from a hedge.
func TestTogether(t *testing.T) {
	seeds := uint64(2)
	if testing.Short() {
		seeds = 1
	}
	for _, load := range []string{"600/s", "150/s"} {
		for _, direct := range []string{"", "direct\n"} {
			hedges, primaries := 0.0, 0.0
			for seed := range seeds {
				script := fmt.Sprintf("%sload %s for 60s\nthreads 64\nconsumer idempotent: true\n", direct, load) + commonFreezes(seed) + hedgeOn
				all, early := runScript(t, script), runScript(t, script+fmt.Sprintf("load %s for 10s\n", load))
				hedges += float64(all.Hedges - early.Hedges)
				primaries += float64(all.Primaries - early.Primaries)
			}
			t.Logf("%s, %q: hedges %.2f%%", load, direct, 100*hedges/primaries)
			if hedges/primaries > .003 {
				t.Errorf("%s, %q: %.2f%% of the requests were hedged, want at most 0.3%%", load, direct, 100*hedges/primaries)
			}
		}
	}
}

// commonFreezes returns the lines of freezes of all applications, at random times.
func commonFreezes(seed uint64) string {
	var script strings.Builder
	rnd := rand.New(rand.NewPCG(seed, 2))
	for at := time.Second; at < 58*time.Second; at += 50*time.Millisecond + time.Duration(2*rnd.ExpFloat64()*float64(time.Second)) {
		for provider := 1; provider <= 3; provider++ {
			fmt.Fprintf(&script, "at %v stall provider %d for 50ms\n", at.Round(time.Millisecond), provider)
		}
	}
	return script.String()
}
