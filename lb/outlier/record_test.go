package outlier

import (
	"testing"
	"time"
)

// TestRecord: each outcome counts where it belongs, and no outcome is older than 10 s.
func TestRecord(t *testing.T) {
	var r Record
	r.Count(0, true)
	r.Count(0, true)
	r.CountErrorStatus(0)
	r.Count(0, false)
	r.CountNotDone(0)
	for i := range time.Duration(20) {
		r.CountLatency(0, 2*i)
	}
	for _, at := range []struct {
		now            time.Duration
		errors, all    float64
		failures, good int
		known          bool
	}{{0, 3, 4, 1, 2, true}, {5 * sec, 3, 4, 1, 2, true}, {10 * sec, 0, 0, 1, 0, false}} {
		failures, good := r.Streak(at.now)
		errors, all := r.Errors()
		mean, known := r.Mean()
		if errors != at.errors || all != at.all || failures != at.failures || good != at.good || known != at.known || known && mean != 19 {
			t.Errorf("at %v: %v errors of %v, %d failures in a row, %d good, mean %v, known %v; want %+v",
				at.now, errors, all, failures, good, mean, known, at)
		}
	}
	r.Count(10*sec, false)
	if failures, _ := r.Streak(10 * sec); failures != 2 {
		t.Errorf("%d failures in a row over more than 10 s, want 2", failures)
	}
	r.Clear()
	if failures, _ := r.Streak(10 * sec); failures != 0 || r.Discount() != 1 {
		t.Error("a cleared record is not empty")
	}
}
