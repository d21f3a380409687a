package hedge

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

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
// endpoints get the primaries in turn. It reports whether the primary was watched.
func (r *Route) serve(s *Service, at, took time.Duration) bool {
	var w Watch
	s.Primary(at, r)
	r.Begin(&w)
	r.send(at, &w, uint32(at/ms)%3, false)
	if due := at + r.Delay(at); due < at+took {
		w.Asked = due
	}
	r.Answered(at+took, took, &w)
	return w.Watched
}

// send simulates that the primary of a hedgeable request is sent, with much time left.
func (r *Route) send(at time.Duration, w *Watch, endpoint uint32, unavailable bool) {
	if w.Left == 0 {
		w.Left = never
	}
	if r.Sent(at, w, endpoint) {
		r.Note(at, w, unavailable)
	}
}

// all returns all forecasts.
func (r *Route) all(now time.Duration) []Forecast {
	forecasts, _ := r.Forecasts(now, 64)
	return forecasts
}

func (r *Route) current(now time.Duration) Forecast { return r.all(now)[0] }

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
		{"not watched", func(p *Policy, w *Watch) { w.Watched = false }, 0, 0},
		{"no time left", func(p *Policy, w *Watch) { w.Left = 5 * ms }, 0, 50 * ms},
		{"at 20 ms", func(p *Policy, w *Watch) { p.Delay, w.Asked = 20*ms, at+20*ms }, 1, 21 * ms},
		{"asked late: the loop was not scheduled", func(p *Policy, w *Watch) { w.Asked = at + 30*ms }, 1, 31 * ms},
		{"response before the decision", func(p *Policy, w *Watch) { w.Asked = 0 }, 0, 50 * ms},
		{"two hedges gain no more", func(p *Policy, w *Watch) { p.Max = 2 }, 1, 6 * ms},
		{"no budget", func(p *Policy, w *Watch) { p.Budget = 0 }, 0, 50 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, w := fixed, Watch{Watched: true}
			w.Asked = at + p.Delay
			c.change(&p, &w)
			_, r := shadowed(p)
			if p.Budget == 0 {
				r.shadow.plans[0].tokens = 0
			}
			r.send(at, &w, 0, false)
			r.Answered(at+50*ms, 50*ms, &w)
			f := r.current(at + 50*ms)
			slowest, _ := f.Latency.Quantile(1)
			watched := int64(1001)
			if c.took == 0 {
				c.took, watched = ms, 1000
			}
			if f.Hedges != c.hedges || (slowest-c.took).Abs() > c.took/20 || f.Latency.Samples() != watched || !f.Current {
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
	w := Watch{Watched: true, Left: 100 * ms, Asked: 905 * ms}
	r.send(900*ms, &w, 0, false)
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
		ws[i] = Watch{Watched: true, Asked: sent(i) + p.Delay}
		s.Primary(sent(i), r)
		r.send(sent(i), &ws[i], uint32(i%3), i > 15)
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
	w := Watch{Watched: true, Asked: 914 * ms}
	r.send(900*ms, &w, 0, false)
	r.Answered(950*ms, 50*ms, &w)
	want := map[time.Duration]time.Duration{ // the delay or the late timer, and 1 ms for the response
		1 * ms: 2 * ms, 2 * ms: 3 * ms, 3 * ms: 4 * ms, 4 * ms: 15 * ms, 5 * ms: 15 * ms, 10 * ms: 15 * ms, 20 * ms: 21 * ms,
	}
	for _, f := range r.all(950 * ms) {
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
	for _, f := range NewRoute(p, 1).all(0) {
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
	if NewRoute(defaultPolicy(), 1).all(0) != nil {
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

// The forecast of a share of the requests is that of all.
func TestSample(t *testing.T) {
	const requests = 200_000
	forecast := func(sample float64) (Forecast, int) {
		p := defaultPolicy()
		p.Sample, p.Delay = sample, 5*ms
		p.Mode = Shadow
		s, r := NewService(1), NewRoute(p, 1)
		rnd, watched := rand.New(rand.NewPCG(1, 2)), 0
		for i := range requests {
			took := time.Duration(float64(ms) * math.Exp(rnd.NormFloat64()/2))
			if i%500 < 10 {
				took += 20 * ms
			}
			if r.serve(&s, time.Duration(i)*ms/4, took) {
				watched++
			}
		}
		return r.current(requests * ms / 4), watched
	}
	all, n := forecast(1)
	some, m := forecast(0.03)
	if n != requests || m < requests*28/1000 || m > requests*32/1000 {
		t.Errorf("%d of all and %d of 3%% are watched", n, m)
	}
	for _, q := range []float64{.5, .99, .999} {
		want, _ := all.Latency.Quantile(q)
		if got, _ := some.Latency.Quantile(q); (got - want).Abs() > want/8 {
			t.Errorf("the %v-quantile is %v, and %v of all", q, got, want)
		}
	}
	want, got := float64(all.Hedges)/float64(all.Requests), float64(some.Hedges)/float64(some.Requests)
	if math.Abs(got-want) > .003 || want < .01 {
		t.Errorf("the load is %.2f%%, and %.2f%% of all", 100*got, 100*want)
	}
}

// A route whose requests may not be repeated needs no memory for a forecast, one with requests of
// all kinds of latency no more than is documented.
func TestShadowMemory(t *testing.T) {
	size := func(r *Route) (bytes int) {
		bytes = len(r.shadow.timeline.ring) * int(unsafe.Sizeof(noted{}))
		for _, h := range r.shadow.halves {
			if h == nil {
				continue
			}
			bytes += int(unsafe.Sizeof(*h)) + len(h.changes)*int(unsafe.Sizeof(change{}))
			for _, c := range h.changes {
				if c.counts != nil {
					bytes += int(unsafe.Sizeof(*c.counts))
				}
			}
		}
		return bytes
	}
	p := defaultPolicy()
	p.Mode = Shadow
	s, r := NewService(1), NewRoute(p, 1)
	for i := range 10_000 {
		s.Primary(time.Duration(i)*ms, r)
		r.Answered(time.Duration(i)*ms, 30*ms, &Watch{})
	}
	if n := size(r); n != 0 {
		t.Errorf("%d bytes without a request that may be repeated", n)
	}
	for i := range 10_000 {
		r.serve(&s, time.Duration(i)*100*ms, ms/2)
	}
	if n := size(r); n > 5<<10 {
		t.Errorf("%d bytes for few and quick requests, want at most 5 KiB", n)
	}
	for i := range 100_000 {
		took := ms
		if i%40 == 0 {
			took = 100 * ms
		}
		r.serve(&s, time.Hour+time.Duration(i)*ms, took)
	}
	if n := size(r); n > 40<<10 || n < 30<<10 {
		t.Errorf("%d bytes for many and late requests, want at most 40 KiB", n)
	}
}

// So many routes of a loop are watched, those that need it first.
func TestRoom(t *testing.T) {
	p := defaultPolicy()
	p.Mode = Shadow
	var room Room
	watched := func() (r *Route, yes bool) {
		var w Watch
		r = NewRoute(p, 1)
		r.Bound(&room)
		for range 2 {
			r.Begin(&w)
		}
		return r, w.Watched && w.Hedgeable
	}
	first, _ := watched()
	for range maxWatched - 1 {
		if _, ok := watched(); !ok {
			t.Fatalf("a route is not watched with %d others", room.taken)
		}
	}
	over, ok := watched()
	if ok {
		t.Errorf("more than %d routes are watched", maxWatched)
	}
	over.Retire()
	if _, ok := watched(); ok {
		t.Error("a route that was not watched left room")
	}
	first.Retire()
	if _, ok := watched(); !ok {
		t.Error("a route that retired left no room")
	}
}

// A tiny share is no reason to fail: few requests are watched, if any.
func TestSampleBounds(t *testing.T) {
	p := defaultPolicy()
	p.Mode, p.Delay, p.Sample = Shadow, 5*ms, 1.0/(1<<32)
	s, r := NewService(1), NewRoute(p, 1)
	watched := 0
	for i := range 1000 {
		if r.serve(&s, time.Duration(i)*ms, ms) {
			watched++
		}
	}
	every, step := float64(r.shadow.every), float64(2*r.shadow.every-1)
	if watched == 0 || watched > 2 || every < 1<<16 || step != 2*every-1 {
		t.Errorf("%d of 1000 requests are watched, one in %v, the next after at most %v", watched, every, step)
	}
}
