package mesh

import (
	"fmt"
	"testing"
	"time"

	wire "github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/loop"
)

// TestTiedHedges: with few workers behind queues, tied hedges make P99.9 shorter than hedges that are refused, as those of
// consumers that know no other, and harm neither P99 nor the budget.
func TestTiedHedges(t *testing.T) {
	for _, c := range []struct {
		workers, providers, consumers int
		load                          float64 // requests per second
		most                          float64 // P99.9, as a part of that without tied hedges
	}{
		{1, 10, 3, 4500, .95},
		{2, 6, 5, 5200, .95},
		{4, 5, 6, 8500, 1.05},
	} {
		if testing.Short() && c.workers > 1 {
			continue
		}
		t.Run(fmt.Sprintf("%d workers", c.workers), func(t *testing.T) {
			spec := NewSpec()
			spec.Providers, spec.Consumers, spec.Threads, spec.Sigma = c.providers, c.consumers, c.workers, 1
			spec.Load, spec.Duration, spec.WarmUp = c.load, 6*time.Second, 2*time.Second
			spec.StallEvery, spec.StallFor = 2*time.Second, 50*time.Millisecond
			spec.Consumer["idempotent"], spec.Consumer["hedge"] = "true", "{mode: on}"
			spec.Provider["max_concurrency"] = fmt.Sprint(c.workers)
			tied, refused := Run(spec), run(spec, tampering{loop: func(_ int, l loop.Loop) loop.Loop { return olderLoop{l} }})
			for _, r := range []*Result{tied, refused} {
				if len(r.Violations) > 0 {
					t.Errorf("violations: %q", r.Violations)
				}
			}
			t.Logf("P99 %v instead of %v, P99.9 %v instead of %v; %d of %d hedges won instead of %d of %d, extra load %.2f%% instead of %.2f%%",
				tied.Quantile(.99), refused.Quantile(.99), tied.Quantile(.999), refused.Quantile(.999),
				tied.HedgesWon, tied.Hedges, refused.HedgesWon, refused.Hedges, 100*tied.ExtraLoad(), 100*refused.ExtraLoad())
			ratio := func(q float64) float64 { return float64(tied.Quantile(q)) / float64(refused.Quantile(q)) }
			if ratio(.99) > 1.05 || ratio(.999) > c.most {
				t.Errorf("P99 %.2f and P99.9 %.2f of those without tied hedges, want at most 1.05 and %.2f", ratio(.99), ratio(.999), c.most)
			}
		})
	}
}

// olderLoop is the loop of a sidecar that does not see that providers know tied hedges.
type olderLoop struct{ loop.Loop }

func (l olderLoop) Dial(addr string, timeout time.Duration, r loop.Receiver) {
	l.Loop.Dial(addr, timeout, &olderLink{Receiver: r})
}

type olderLink struct {
	loop.Receiver
	at int // bytes that were read
}

func (l *olderLink) OnData(b []byte) {
	const features = 16 // where they are in an acceptor's preface
	if i := features - l.at; i >= 0 && i < len(b) {
		b[i] &^= wire.FeatureStarts
	}
	l.at += len(b)
	l.Receiver.OnData(b)
}
