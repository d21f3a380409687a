package load

import (
	"net"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lab/steal"
)

func TestUndisturbedLeavesOutWhatWasDueAroundAStop(t *testing.T) {
	start := time.Now()
	at := func(ms float64) time.Time { return start.Add(time.Duration(ms * float64(time.Millisecond))) }
	stop := func(from, to float64) steal.Stop { return steal.Stop{From: at(from), To: at(to)} }
	for _, c := range []struct {
		name  string
		stops []steal.Stop
		due   float64 // ms
		left  bool    // out
	}{
		{"nothing stood still", nil, 100, false},
		{"during a stop", []steal.Stop{stop(90, 110)}, 100, true},
		{"just before it", []steal.Stop{stop(104, 110)}, 100, true},
		{"well before it", []steal.Stop{stop(106, 110)}, 100, false},
		{"just behind a short one", []steal.Stop{stop(94, 96)}, 100, true},
		{"well behind a short one", []steal.Stop{stop(92, 94)}, 100, false},
		{"in the queue behind a long one", []steal.Stop{stop(70, 86)}, 100, true},
		{"behind that queue", []steal.Stop{stop(70, 84)}, 100, false},
		{"between two", []steal.Stop{stop(110, 120), stop(80, 88)}, 100, false},
		{"in the longer of two that begin together", []steal.Stop{stop(50, 110), stop(50, 60)}, 100, true},
		{"behind one that holds others", []steal.Stop{stop(50, 74), stop(60, 70), stop(10, 20)}, 100, false},
	} {
		for _, took := range []time.Duration{time.Millisecond, time.Second} {
			r := &Result{Samples: []Sample{{at(c.due), took}}, Stops: c.stops}
			if left := r.Undisturbed().TotalCount() == 0; left != c.left {
				t.Errorf("%s, answered after %v: left out: %v, want %v", c.name, took, left, c.left)
			}
		}
	}
}

func TestSamplesAreKeptWhereAskedFor(t *testing.T) {
	url := serve(t, func(_ int64, nonce string, c net.Conn) bool { return ok(nonce, c) })
	for _, keep := range []bool{false, true} {
		r := run(t, Options{Targets: []string{url}, Rate: 1000, Duration: 100 * time.Millisecond, Samples: keep})
		want := int64(0)
		if keep {
			want = r.Counts.Requests
		}
		if got := int64(len(r.Samples)); got != want {
			t.Errorf("Samples %v: %d of %d requests", keep, got, r.Counts.Requests)
		}
		if j, err := r.JSON(); err != nil || keep != (j.Undisturbed != nil && j.Undisturbed.Requests == want) {
			t.Errorf("Samples %v: %+v, %v", keep, j.Undisturbed, err)
		}
	}
}
