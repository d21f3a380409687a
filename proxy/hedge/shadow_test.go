package hedge

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/forecast"
)

func send(at time.Duration, r *Route, w *Watch, endpoint uint32) {
	if s := r.Shadow; s.Sent(at, w, endpoint) {
		s.Note(at, w, false)
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
		send(cacheAge+3*ms, r, &hedge, 1)
		r.Latencies.Observe(cacheAge+4*ms, ms, hedge.Class)
		r.Shadow.End(cacheAge+4*ms, &hedge, false)
		w := Watch{Class: r.Latencies.ClassOf(cacheAge, nil, size), Paid: true, Watch: forecast.Watch{Watched: true, Asked: cacheAge + 3*ms, Left: 8 * ms}}
		send(cacheAge, r, &w, 0)
		r.Latencies.Censor(cacheAge+8*ms, w.Class)
		r.Shadow.End(cacheAge+8*ms, &w, true)
		if f, _ := r.Shadow.Forecasts(cacheAge+8*ms, 1); f[0].Hedges != want {
			t.Errorf("%d hedges of a request of %d bytes, want %d", f[0].Hedges, size, want)
		}
	}
}
