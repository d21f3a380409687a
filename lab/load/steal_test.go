package load

import (
	"net"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lab/steal"
)

// TestUndisturbed checks that only the time at which a request was due decides.
func TestUndisturbed(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	stop := steal.Stop{From: at(90), To: at(110)}
	for due, left := range map[int]bool{100: true, 80: false, 200: false} {
		for _, latency := range []time.Duration{time.Millisecond, time.Second} {
			r := &Result{Samples: []Sample{{at(due), latency}}, Stops: []steal.Stop{stop}}
			if got := r.Undisturbed().TotalCount() == 0; got != left {
				t.Errorf("due at %d ms, latency %v: left out: %v", due, latency, got)
			}
		}
	}
}

func TestSamplesOption(t *testing.T) {
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
