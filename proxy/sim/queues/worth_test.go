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
		{Lognormal10, 0.01, 0.03},
	} {
		cell := Cell{Busy: .05, Service: c.service, Replicas: 3, Callers: 1} // 1,000 a second or so
		all := NewResult()
		for seed := range uint64(*seeds) {
			all.Add(Run(cell, On, n, seed))
		}
		if extra := all.Extra(); extra < c.least || extra > c.most {
			t.Errorf("%v: %.2f%% extra, want %.1f%% to %.1f%%, gates %v", cell, 100*extra, 100*c.least, 100*c.most, all.Gates)
		}
	}
}
