package queues

import (
	"testing"
	"time"
)

// TestStragglers: where some requests are stragglers by chance, the best delay is before these. The quantile 0.97 is
// among them.
func TestStragglers(t *testing.T) {
	n := Length{Requests: *requests, WarmUp: 10 * time.Second}
	run := func(c Cell, way Way) *Result {
		c.Busy = 600 * c.Service.mean().Seconds() / float64(unlimited*c.Replicas) // 600 a second
		all := NewResult()
		for seed := range uint64(*seeds) {
			all.Add(Run(c, way, n, seed))
		}
		t.Logf("%v, budget %v, quantile %v, %v: P99 %v, P99.9 %v, %.2f%% extra", c, c.Budget, c.Quantile, way, all.Quantile(.99), all.Quantile(.999), 100*all.Extra())
		return all
	}
	for _, c := range []struct {
		service        Service
		budget         float64
		p99, afterTail time.Duration // at most, and at least after the quantile
	}{
		{Stragglers, .05, 30 * time.Millisecond, 50 * time.Millisecond},
		{Stragglers, .09, 20 * time.Millisecond, 50 * time.Millisecond},
		{FewStragglers, .05, 20 * time.Millisecond, 0},
	} {
		for _, callers := range []int{1, 2} {
			cell := Cell{Service: c.service, Replicas: 3, Callers: callers, Budget: c.budget}
			off, best := run(cell, Off), run(cell, On)
			most := c.p99 + time.Duration(callers-1)*c.p99/4 // each has fewer tokens
			if best.Quantile(.99) > most || best.Quantile(.999) > off.Quantile(.999) || best.Extra() > 1.06*c.budget {
				t.Errorf("P99 %v and P99.9 %v with hedges, P99.9 %v without; %.2f%% extra", best.Quantile(.99), best.Quantile(.999), off.Quantile(.999), 100*best.Extra())
			}
			cell.Quantile = .97
			if after := run(cell, On); after.Quantile(.99) < c.afterTail {
				t.Errorf("after the quantile 0.97 P99 is %v: the test shows nothing", after.Quantile(.99))
			}
			if testing.Short() {
				return
			}
		}
	}
}
