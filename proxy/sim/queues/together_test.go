package queues

import (
	"testing"
	"time"
)

// TestTogether: where all replicas freeze at the same moments, at random times, hedges gain nothing, so hardly any is
// sent. The late requests are not independent of each other: a second replica would have been as late.
func TestTogether(t *testing.T) {
	n := Length{Requests: 2 * *requests, WarmUp: 10 * time.Second}
	for _, c := range []Cell{
		{Busy: .0236, Service: Lognormal05, Freezes: Together, Replicas: 3, Callers: 1}, // 1,000 a second
		{Busy: .006, Workers: 64, Queued: true, Service: Lognormal05, Freezes: Together, Replicas: 3, Callers: 1},
		{Busy: .0236, Service: Exponential, Freezes: Together, Replicas: 3, Callers: 1},
		{Busy: .0236, Service: Lognormal05, Freezes: Together, Replicas: 3, Callers: 2, Direct: true},
		{Busy: .0236, Service: Lognormal05, Freezes: Together, Replicas: 5, Callers: 1},
		{Busy: .0031, Service: Exponential, Freezes: Together, Replicas: 3, Callers: 1}, // 150 a second
	} {
		all, off := NewResult(), NewResult()
		for seed := range uint64(3) {
			all.Add(Run(c, On, n, seed))
			off.Add(Run(c, Off, n, seed))
		}
		t.Logf("%v: %.2f%% extra, P99 %v of %v, P99.9 %v of %v", c, 100*all.Extra(),
			all.Quantile(.99), off.Quantile(.99), all.Quantile(.999), off.Quantile(.999))
		if extra := all.Extra(); extra > .003 {
			t.Errorf("%v: %.2f%% extra, want at most 0.3%%, gates %v", c, 100*extra, all.Gates)
		}
		for _, q := range []float64{.99, .999} {
			if float64(all.Quantile(q)) > 1.03*float64(off.Quantile(q)) {
				t.Errorf("%v: the %v-quantile is %v, and %v without hedges", c, q, all.Quantile(q), off.Quantile(q))
			}
		}
	}
}
