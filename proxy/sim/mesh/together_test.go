package mesh

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// TestTogether: where all applications freeze at the same moments, at random times, hedges gain nothing, so hardly any is
// sent.
func TestTogether(t *testing.T) {
	var script strings.Builder
	script.WriteString("load 600/s for 40s\nthreads 64\nconsumer idempotent: true\nconsumer hedge: {mode: on}\n")
	rnd := rand.New(rand.NewPCG(1, 2))
	for at := time.Second; at < 38*time.Second; at += 50*time.Millisecond + time.Duration(2*rnd.ExpFloat64()*float64(time.Second)) {
		for provider := 1; provider <= 3; provider++ {
			fmt.Fprintf(&script, "at %v stall provider %d for 50ms\n", at.Round(time.Millisecond), provider)
		}
	}
	for _, direct := range []string{"", "direct\n"} {
		r := runScript(t, direct+script.String())
		share := float64(r.Hedges) / float64(r.Primaries)
		t.Logf("%q: hedges %.2f%%, gates %v", direct, 100*share, r.Gates)
		if share > .003 {
			t.Errorf("%q: %.2f%% of the requests were hedged, want at most 0.3%%", direct, 100*share)
		}
	}
}
