package forecast

import (
	"testing"
	"time"
)

// A forecast is made of the requests of the last half minute and more: until they are enough.
func TestForecastTime(t *testing.T) {
	for _, c := range []struct {
		every time.Duration
		want  time.Duration // how long the oldest request counts
	}{{ms, time.Minute}, {20 * ms, 164 * time.Second}, {time.Second, 20 * time.Minute}} {
		r := &route{Shadow: New(defaults()), delay: 5 * ms}
		for i := 0; ; i++ {
			at := time.Duration(i) * c.every
			r.serve(at, ms)
			if i%40 != 0 { // a forecast takes longer than a request
				continue
			}
			if f := r.current(at); f.Latency.Samples() != int64(f.Requests) {
				t.Fatalf("%d of %d requests", f.Latency.Samples(), f.Requests)
			} else if r.halves[1] != nil && r.halves[1].began > 10*time.Second {
				if (at - c.want).Abs() > c.want/20 {
					t.Errorf("one each %v: the first counts for %v, want %v", c.every, at, c.want)
				}
				break
			}
		}
		idle := r.halves[0].began + 21*time.Minute
		if f := r.current(idle); f.Latency.Samples() != 0 {
			t.Errorf("%d requests after a pause", f.Latency.Samples())
		}
	}
}

// Extra load is hedges per request of the same time, not of one before, in which none was watched.
func TestForecastRequests(t *testing.T) {
	r := &route{Shadow: New(defaults()), delay: 5 * ms}
	want := uint64(0)
	for _, begin := range []time.Duration{0, model.halfMost, 2*model.halfMost - time.Second} {
		for range 1000 { // none may be hedged
			r.primaries++
		}
		for i := range 10 {
			r.serve(begin+time.Duration(i)*ms, ms)
		}
		if begin < 2*model.halfMost-time.Second { // a half begins
			want += 10
		} else {
			want += 1010
		}
		if f := r.current(begin + time.Second); f.Requests != want {
			t.Errorf("after %v the forecast is for %d requests, want %d", begin, f.Requests, want)
		}
	}
}
