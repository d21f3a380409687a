package queues

import (
	"testing"
	"time"
)

// TestNothingToGain: where a tenth of the requests has more to do, wherever it is sent, hedges
// soon stop. Where the slow requests are slow by chance they go on.
func TestNothingToGain(t *testing.T) {
	n := Length{Requests: *requests, WarmUp: 10 * time.Second}
	for _, c := range []struct {
		service     Service
		least, most float64 // hedges per request
	}{
		{Bimodal, 0, 0.003},
		{Lognormal05, 0.01, 0.03},
		{Lognormal10, 0.01, 0.05},
	} {
		cell := Cell{Busy: .05, Service: c.service, Replicas: 3, Callers: 1} // 1,000 a second or so
		all, off := NewResult(), NewResult()
		for seed := range uint64(*seeds) {
			all.Add(Run(cell, On, n, seed))
			off.Add(Run(cell, Off, n, seed))
		}
		t.Logf("%v: %.2f%% extra, P99 %v of %v, P99.9 %v of %v", cell, 100*all.Extra(),
			all.Quantile(.99), off.Quantile(.99), all.Quantile(.999), off.Quantile(.999))
		if extra := all.Extra(); extra < c.least || extra > c.most {
			t.Errorf("%v: %.2f%% extra, want %.1f%% to %.1f%%, gates %v", cell, 100*extra, 100*c.least, 100*c.most, all.Gates)
		}
		for _, q := range []float64{.99, .999} {
			if float64(all.Quantile(q)) > 1.03*float64(off.Quantile(q)) {
				t.Errorf("%v: the %v-quantile is %v, and %v without hedges", cell, q, all.Quantile(q), off.Quantile(q))
			}
		}
	}
}
