package hedge

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/racetest"
)

// shadowed returns a route in shadow mode that has seen latencies of 1 ms.
func shadowed(p Policy) (*Service, *Route) {
	p.Mode = Shadow
	s, r := NewService(1), NewRoute(p, 1)
	for i := range 1000 {
		r.serve(&s, time.Duration(i)*ms, ms)
	}
	return &s, r
}

// serve simulates a primary that is sent at the time at and takes took. The three
// endpoints get the primaries in turn.
func (r *Route) serve(s *Service, at, took time.Duration) {
	w := Watch{Hedgeable: true, Left: never}
	s.Primary(at, r)
	r.Sent(at, &w, uint32(at/ms)%3, false)
	if due := at + r.Delay(at); due < at+took {
		w.Asked = due
	}
	r.Answered(at+took, took, &w)
}

func (r *Route) current(now time.Duration) Forecast { return r.Forecasts(now)[0] }

func TestForecastOfOneSlowRequest(t *testing.T) {
	fixed := defaultPolicy()
	fixed.Delay = 5 * ms
	const at = 900 * ms
	for _, c := range []struct {
		name   string
		change func(p *Policy, w *Watch)
		hedges uint64
		took   time.Duration
	}{
		{"rescued", func(p *Policy, w *Watch) {}, 1, 6 * ms},
		{"not idempotent", func(p *Policy, w *Watch) { w.Hedgeable = false }, 0, 50 * ms},
		{"no time left", func(p *Policy, w *Watch) { w.Left = 5 * ms }, 0, 50 * ms},
		{"at 20 ms", func(p *Policy, w *Watch) { p.Delay, w.Asked = 20*ms, at+20*ms }, 1, 21 * ms},
		{"asked late: the loop was not scheduled", func(p *Policy, w *Watch) { w.Asked = at + 30*ms }, 1, 31 * ms},
		{"response before the decision", func(p *Policy, w *Watch) { w.Asked = 0 }, 0, 50 * ms},
		{"two hedges gain no more", func(p *Policy, w *Watch) { p.Max = 2 }, 1, 6 * ms},
		{"no budget", func(p *Policy, w *Watch) { p.Budget = 0 }, 0, 50 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, w := fixed, Watch{Hedgeable: true, Left: never}
			w.Asked = at + p.Delay
			c.change(&p, &w)
			_, r := shadowed(p)
			if p.Budget == 0 {
				r.shadow.plans[0].tokens = 0
			}
			r.Sent(at, &w, 0, false)
			r.Answered(at+50*ms, 50*ms, &w)
			f := r.current(at + 50*ms)
			slowest, _ := f.Latency.Quantile(1)
			if f.Hedges != c.hedges || (slowest-c.took).Abs() > c.took/20 || f.Latency.Samples() != 1001 || !f.Current {
				t.Errorf("%d hedges, slowest %v of %d; want %d and %v", f.Hedges, slowest, f.Latency.Samples(), c.hedges, c.took)
			}
		})
	}
}

// A request that was cut off at its deadline counts as rescued too.
func TestForecastOfARequestPastItsDeadline(t *testing.T) {
	p := defaultPolicy()
	p.Delay = 5 * ms
	_, r := shadowed(p)
	w := Watch{Hedgeable: true, Left: 100 * ms, Asked: 905 * ms}
	r.Sent(900*ms, &w, 0, false)
	r.Late(1000*ms, &w)
	f := r.current(1000 * ms)
	if slowest, ok := f.Latency.Quantile(1); !ok || slowest > 7*ms || f.Hedges != 1 {
		t.Errorf("slowest %v (%v), %d hedges; want 6 ms and one", slowest, ok, f.Hedges)
	}
}

// With a delay of 0 the forecast asks no more often than the loop would, and sends
// no more hedges than there are tokens.
func TestForecastWithoutDelay(t *testing.T) {
	p := defaultPolicy()
	p.MinDelay, p.MaxDelay, p.Budget = 0, 0, 0
	_, r := shadowed(p)
	if f := r.current(time.Second); f.Hedges != minTotal || f.Latency.Samples() != 1000 {
		t.Errorf("%d hedges for %d requests, want %v of the burst for 1000", f.Hedges, f.Latency.Samples(), minTotal)
	}
}

// While all endpoints are slow together, a hedge gains nothing.
func TestForecastOfACorrelatedStall(t *testing.T) {
	p := defaultPolicy()
	p.Delay = 5 * ms
	s, r := shadowed(p)
	var ws [30]Watch
	sent := func(i int) time.Duration { return 1000*ms + time.Duration(i)*ms }
	for i := range ws {
		ws[i] = Watch{Hedgeable: true, Left: never, Asked: sent(i) + p.Delay}
		s.Primary(sent(i), r)
		r.Sent(sent(i), &ws[i], uint32(i%3), i > 15)
	}
	for i := range ws { // the stall of all endpoints ends
		r.Answered(1100*ms, 1100*ms-sent(i), &ws[i])
	}
	f := r.current(1200 * ms)
	if slowest, _ := f.Latency.Quantile(1); slowest < 90*ms {
		t.Errorf("slowest %v; the forecast gains from hedges in a stall of 100 ms", slowest)
	}
}

// A loop that reaches the timer of the delay in force late delays the forecast for
// longer delays, but not for shorter ones.
func TestForecastsAfterALateTimer(t *testing.T) {
	p := defaultPolicy()
	p.Delay = 4 * ms
	_, r := shadowed(p)
	w := Watch{Hedgeable: true, Left: never, Asked: 914 * ms}
	r.Sent(900*ms, &w, 0, false)
	r.Answered(950*ms, 50*ms, &w)
	want := map[time.Duration]time.Duration{ // the delay or the late timer, and 1 ms for the response
		1 * ms: 2 * ms, 2 * ms: 3 * ms, 3 * ms: 4 * ms, 4 * ms: 15 * ms, 5 * ms: 15 * ms, 10 * ms: 15 * ms, 20 * ms: 21 * ms,
	}
	for _, f := range r.Forecasts(950 * ms) {
		if slowest, _ := f.Latency.Quantile(1); (slowest - want[f.Delay]).Abs() > want[f.Delay]/20 {
			t.Errorf("delay %v: slowest %v, want %v", f.Delay, slowest, want[f.Delay])
		}
	}
}

// Beside the delay in force there are forecasts for the delays within the bounds.
func TestForecastDelays(t *testing.T) {
	p := defaultPolicy()
	p.Mode, p.MinDelay, p.MaxDelay = Shadow, 2*ms, 10*ms
	var got []time.Duration
	for _, f := range NewRoute(p, 1).Forecasts(0) {
		got = append(got, f.Delay)
	}
	want := []time.Duration{10 * ms, 2 * ms, 3 * ms, 5 * ms, 10 * ms}
	if len(got) != len(want) {
		t.Fatalf("delays %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("delays %v, want %v", got, want)
		}
	}
	if NewRoute(defaultPolicy(), 1).Forecasts(0) != nil {
		t.Error("forecasts without shadow mode")
	}
}

func TestShadowDoesNotAllocate(t *testing.T) {
	if racetest.Enabled {
		t.Skip("the race detector allocates")
	}
	s, r := shadowed(defaultPolicy())
	at := time.Second
	if n := testing.AllocsPerRun(1000, func() {
		at += 2 * ms
		r.serve(s, at, 40*ms)
	}); n != 0 {
		t.Errorf("%v allocations per request", n)
	}
}

// BenchmarkShadow measures what shadow mode adds to a request. One of 50 is slow.
func BenchmarkShadow(b *testing.B) {
	s, r := shadowed(defaultPolicy())
	at, i := time.Second, 0
	b.ReportAllocs()
	for b.Loop() {
		at += 200 * time.Microsecond
		took := ms
		if i++; i%50 == 0 {
			took = 30 * ms
		}
		r.serve(s, at, took)
	}
}
