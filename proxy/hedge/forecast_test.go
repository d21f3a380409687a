package hedge

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
		p := defaultPolicy()
		p.Mode = Shadow
		s, r := NewService(1), NewRoute(p, 1)
		for i := 0; ; i++ {
			at := time.Duration(i) * c.every
			r.serve(&s, at, ms)
			if i%40 != 0 { // a forecast takes longer than a request
				continue
			}
			if f := r.current(at); f.Latency.Samples() != int64(f.Requests) {
				t.Fatalf("%d of %d requests", f.Latency.Samples(), f.Requests)
			} else if r.shadow.halves[1] != nil && r.shadow.halves[1].began > 10*time.Second {
				if (at - c.want).Abs() > c.want/20 {
					t.Errorf("one each %v: the first counts for %v, want %v", c.every, at, c.want)
				}
				break
			}
		}
		idle := r.shadow.halves[0].began + 21*time.Minute
		if f := r.current(idle); f.Latency.Samples() != 0 {
			t.Errorf("%d requests after a pause", f.Latency.Samples())
		}
	}
}

// Extra load is hedges per request of the same time, not of one before, in which none was watched.
func TestForecastRequests(t *testing.T) {
	p := defaultPolicy()
	p.Mode = Shadow
	s, r := NewService(1), NewRoute(p, 1)
	want := uint64(0)
	for _, begin := range []time.Duration{0, halfMost, 2*halfMost - time.Second} {
		for range 1000 { // none may be hedged
			s.Primary(begin, r)
		}
		for i := range 10 {
			r.serve(&s, begin+time.Duration(i)*ms, ms)
		}
		if begin < 2*halfMost-time.Second { // a half begins
			want += 10
		} else {
			want += 1010
		}
		if f := r.current(begin + time.Second); f.Requests != want {
			t.Errorf("after %v the forecast is for %d requests, want %d", begin, f.Requests, want)
		}
	}
}

// The forecast has the gate deadline ask for the median of the class, as Decide does.
func TestForecastDeadlineOfClass(t *testing.T) {
	for size, want := range map[int]uint64{100: 1, 10_000: 0} {
		p := defaultPolicy()
		p.Mode, p.Delay = Shadow, 3*ms
		r := NewRoute(p, 1)
		learn(r, 1000, 0, map[int]time.Duration{100: ms, 10_000: 10 * ms})
		var hedge Watch
		r.send(cacheAge+3*ms, &hedge, 1, false)
		r.Answered(cacheAge+4*ms, ms, &hedge)
		w := Watch{Class: r.ClassOf(cacheAge, nil, size), Watched: true, Asked: cacheAge + 3*ms, Left: 8 * ms}
		r.send(cacheAge, &w, 0, false)
		r.Late(cacheAge+8*ms, &w)
		if f := r.current(cacheAge + 8*ms); f.Hedges != want {
			t.Errorf("%d hedges of a request of %d bytes, want %d", f.Hedges, size, want)
		}
	}
}
