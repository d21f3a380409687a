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

// TestHalf: a half ends with the first request after the longest time, or after the least time if enough were watched. Requests
// count for twice the longest time.
func TestHalf(t *testing.T) {
	for _, c := range []struct {
		watched int64
		after   time.Duration
		ends    bool
	}{
		{model.enough - 1, model.half, false}, {model.enough, model.half - 1, false}, {model.enough, model.half, true},
		{1, model.halfMost - 1, false}, {1, model.halfMost, true},
	} {
		r := &route{Shadow: New(defaults()), delay: 5 * ms}
		for range c.watched {
			r.serve(0, ms)
		}
		r.serve(c.after, ms)
		left := int64(0) // once those of the first half do not count any more
		if c.ends {
			left = 1
		}
		for late, want := range map[time.Duration]int64{0: c.watched + 1, 1: left} {
			f := r.current(ms + 2*model.halfMost + late)
			if got := f.Latency.Samples(); got != want {
				t.Errorf("%d requests, and one after %v: at last %d count, want %d", c.watched, c.after, got, want)
			}
		}
	}
}

// TestRequestsOnce: no request of a route of which one in ten is watched counts in two halves.
func TestRequestsOnce(t *testing.T) {
	of := defaults()
	of.Sample = .1
	r := &route{Shadow: New(of), delay: 5 * ms}
	halves := 0
	for i := range 2000 {
		began := r.halves[0]
		r.serve(time.Duration(i)*time.Minute, ms)
		if now, before := r.halves[0], r.halves[1]; now != began && before != nil {
			if halves++; now.primaries < before.primaries+before.requests {
				t.Errorf("a half has the requests after %d, one before those up to %d", now.primaries, before.primaries+before.requests)
			}
		}
	}
	if halves < 50 {
		t.Errorf("there were %d halves", halves)
	}
}

// TestForecastForgets: a half that begins anew, in the memory of an old one, has nothing of it.
func TestForecastForgets(t *testing.T) {
	r := &route{Shadow: New(defaults()), delay: 5 * ms}
	r.serve(899*ms, ms)
	for _, cutOff := range []bool{false, true} { // one request is rescued from a late response, one from its deadline
		w := Watch{Watched: true, Asked: 905 * ms}
		r.send(900*ms, &w, 7, false)
		r.primaries++
		r.end(950*ms, &w, cutOff)
	}
	if f := r.current(time.Second); f.Hedges != 2 || f.Requests != 3 || f.Latency.Censored != 0 || f.Latency.LaterThan(10*ms) != 0 {
		t.Fatalf("%d hedges for %d requests, %d are cut off, %v later than 10 ms", f.Hedges, f.Requests, f.Latency.Censored, f.Latency.LaterThan(10*ms))
	}
	for i := range time.Duration(2) {
		r.serve(time.Second+(1+i)*model.halfMost, ms)
	}
	end := time.Second + 2*model.halfMost + ms
	for _, f := range r.all(end) {
		if slowest, _ := f.Latency.Quantile(1); f.Hedges != 0 || f.Requests != 2 || f.Latency.Samples() != 2 || f.Latency.Censored != 0 || slowest > 2*ms {
			t.Errorf("after %v: %d hedges for %d requests; %d latencies up to %v, %d cut off", f.Delay, f.Hedges, f.Requests, f.Latency.Samples(), slowest, f.Latency.Censored)
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
