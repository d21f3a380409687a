package forecast

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/histogram"
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

// TestAdd: a forecast for several loops has the requests and hedges of all, and the longest of their delays.
func TestAdd(t *testing.T) {
	at := histogram.BucketOf(ms)
	var all Forecast
	for i, delay := range []time.Duration{3 * ms, 5 * ms, 4 * ms} {
		one := Forecast{Delay: delay, Hedges: uint64(1 + i), Requests: 100}
		one.Latency.Counts[at] = 10
		all.Add(&one)
	}
	if all.Delay != 5*ms || all.Hedges != 6 || all.Requests != 300 || all.Latency.Counts[at] != 30 {
		t.Errorf("a delay of %v, %d hedges of %d, %d latencies", all.Delay, all.Hedges, all.Requests, all.Latency.Counts[at])
	}
}

// TestForecastsAsked: there are as many forecasts as were asked for, the delay in force first.
func TestForecastsAsked(t *testing.T) {
	r := shadowed(defaults(), 7*ms)
	for most, want := range map[int]int{0: 0, 1: 1, 3: 3, 100: 1 + len(shadowDelays)} {
		all, watched := r.Forecasts(time.Second, r.delay, most)
		if len(all) != want || (watched.Samples() > 0) != (most > 0) {
			t.Errorf("asked for %d: %d forecasts of %d requests", most, len(all), watched.Samples())
		}
		for i, f := range all {
			if f.Current != (i == 0) || i == 0 && f.Delay != 7*ms {
				t.Errorf("forecast %d is for %v, in force %t", i, f.Delay, f.Current)
			}
		}
	}
}
