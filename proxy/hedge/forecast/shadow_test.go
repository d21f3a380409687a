package forecast

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/remora-proxy/remora/internal/racetest"
	"github.com/remora-proxy/remora/proxy/hedge/histogram"
)

const ms = time.Millisecond

func defaults() Settings {
	return Settings{MinDelay: ms, MaxDelay: 50 * ms, Budget: .05, MinBurst: 10, Max: 1, AskInterval: ms / 2}
}

// route simulates a route whose requests may all be hedged.
type route struct {
	*Shadow
	delay     time.Duration // in force
	primaries uint64
	unpaid    bool
	slower    float64 // State.Slower; 0 means 1
}

// shadowed returns a route that has seen latencies of 1 ms.
func shadowed(of Settings, delay time.Duration) *route {
	r := &route{Shadow: New(of), delay: delay}
	for i := range 1000 {
		r.serve(time.Duration(i)*ms, ms)
	}
	return r
}

// serve simulates a primary that is sent at the time at and takes took. The three
// endpoints get the primaries in turn. It reports whether the primary was watched.
func (r *route) serve(at, took time.Duration) bool {
	var w Watch
	r.primaries++
	r.Begin(&w, nil)
	r.send(at, &w, uint32(at/ms)%3, false)
	if r.delay < took {
		w.Asked = at + r.delay
	}
	r.end(at+took, &w, false)
	return w.Watched
}

// send simulates that the primary of a hedgeable request is sent, with much time left.
func (r *route) send(at time.Duration, w *Watch, endpoint uint32, unavailable bool) {
	if w.Left == 0 {
		w.Left = never
	}
	if r.Sent(at, w, endpoint) {
		r.Note(at, w, unavailable)
	}
}

// end simulates the end of a primary.
func (r *route) end(at time.Duration, w *Watch, cutOff bool) {
	if w.Follows() {
		r.End(at, State{Primaries: r.primaries, Delay: r.delay, Paid: !r.unpaid, Median: ms, Slower: max(1, r.slower)}, w, cutOff)
	}
}

// all returns all forecasts.
func (r *route) all(now time.Duration) []Forecast {
	forecasts, _ := r.Forecasts(now, r.delay, 64)
	return forecasts
}

func (r *route) current(now time.Duration) Forecast { return r.all(now)[0] }

func TestForecastOfOneSlowRequest(t *testing.T) {
	const at = 900 * ms
	for _, c := range []struct {
		name   string
		change func(r *route, w *Watch)
		hedges uint64
		took   time.Duration
	}{
		{"rescued", func(r *route, w *Watch) {}, 1, 6 * ms},
		{"not watched", func(r *route, w *Watch) { w.Watched = false }, 0, 0},
		{"no time left", func(r *route, w *Watch) { w.Left = 5 * ms }, 0, 50 * ms},
		{"at 20 ms", func(r *route, w *Watch) { r.delay, w.Asked = 20*ms, at+20*ms }, 1, 21 * ms},
		{"asked late: the loop was not scheduled", func(r *route, w *Watch) { w.Asked = at + 30*ms }, 1, 31 * ms},
		{"response before the decision", func(r *route, w *Watch) { w.Asked = 0 }, 0, 50 * ms},
		{"two hedges gain no more", func(r *route, w *Watch) { r.settings.Max = 2 }, 1, 6 * ms},
		{"the budget does not pay", func(r *route, w *Watch) { r.unpaid = true }, 0, 50 * ms},
		{"the budget does not pay, but the request is stuck", func(r *route, w *Watch) { r.unpaid, w.Stuck = true, at+15*ms }, 1, 16 * ms},
		{"hedges are useless", func(r *route, w *Watch) { r.plans[0].useless() }, 0, 50 * ms},
		{"hedges are useless, but the request is stuck", func(r *route, w *Watch) { r.plans[0].useless(); w.Stuck = at + 20*ms }, 1, 21 * ms},
		{"no budget", func(r *route, w *Watch) { r.plans[0].tokens.Take(100) }, 0, 50 * ms},
		{"no budget for stuck requests either", func(r *route, w *Watch) { r.plans[0].tokens.Take(100); w.Stuck = at }, 0, 50 * ms},
		{"of a class that takes 20 times as long", func(r *route, w *Watch) { r.slower = 20 }, 1, 25 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, w := shadowed(defaults(), 5*ms), Watch{Watched: true, Asked: at + 5*ms}
			c.change(r, &w)
			r.send(at, &w, 0, false)
			r.end(at+50*ms, &w, false)
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

// useless has the gate useless let hardly any hedge through.
func (p *plan) useless() {
	for range 100 {
		p.worth.Judge(ms, 0)
	}
}

// The gate useless of the forecast is as open as that of mode on would be. A route whose attempts are reset learns nothing of
// what hedges save if they come first, so its gate stays open. A request that is cut off at its deadline tells what a hedge
// saves if that comes first.
func TestForecastOfUseless(t *testing.T) {
	const (
		requests = 400
		closed   = requests / 64 // hedges through a gate that is closed: the lowest level of package worth
	)
	for _, c := range []struct {
		name          string
		useless       bool // at first
		reset, cutOff bool
		unpaid        bool          // the budget pays only for each second request
		late          time.Duration // what late requests take
		least, most   uint64        // hedges
	}{
		{"hedges save little", false, false, false, false, 6*ms + ms/64, 50, 250},
		{"hedges save little, and attempts are reset", false, true, false, false, 6*ms + ms/64, requests, requests},
		{"hedges never come first, and attempts are reset", false, true, false, false, 5*ms + ms/2, 50, 250},
		{"hedges are useless, and save little", true, false, false, false, 6*ms + ms/64, closed, closed + 1},
		{"hedges are useless, and the budget pays for each second one", true, false, false, true, 6*ms + ms/64, closed, closed + 1},
		{"hedges save much", true, false, false, false, 50 * ms, requests / 4, requests},
		{"hedges save much, and attempts are reset", true, true, false, false, 50 * ms, requests / 4, requests},
		{"late requests are cut off", true, false, true, false, 50 * ms, requests / 4, requests},
		{"late requests are cut off before a hedge comes", false, false, true, false, 5*ms + ms/2, requests, requests},
	} {
		of := defaults()
		of.Budget = 1
		r := shadowed(of, 5*ms)
		if c.useless {
			r.plans[0].useless()
		}
		for i := range time.Duration(requests) {
			at := time.Second + i*60*ms
			for n := range time.Duration(20) { // at all endpoints
				r.serve(at+n*ms, ms)
			}
			w := Watch{Watched: true, Asked: at + 25*ms, Reset: c.reset}
			r.primaries++
			r.unpaid = c.unpaid && i%2 == 0
			r.send(at+20*ms, &w, 7, false)
			r.end(at+20*ms+c.late, &w, c.cutOff)
		}
		if got := r.current((requests + 20) * 60 * ms).Hedges; got < c.least || got > c.most {
			t.Errorf("%s: %d hedges, want %d to %d", c.name, got, c.least, c.most)
		}
	}
}

// A request that was cut off at its deadline counts as rescued too.
func TestForecastOfARequestPastItsDeadline(t *testing.T) {
	r := shadowed(defaults(), 5*ms)
	w := Watch{Watched: true, Left: 100 * ms, Asked: 905 * ms}
	r.send(900*ms, &w, 0, false)
	r.end(1000*ms, &w, true)
	f := r.current(1000 * ms)
	if slowest, ok := f.Latency.Quantile(1); !ok || slowest > 7*ms || f.Hedges != 1 {
		t.Errorf("slowest %v (%v), %d hedges; want 6 ms and one", slowest, ok, f.Hedges)
	}
}

// TestForecastOfHedges: how many hedges the forecast has for a request that is late by 5 ms, and then at intervals of 5 ms. An endpoint
// without room is asked again. A hedge needs time and tokens, and the response must not have come.
func TestForecastOfHedges(t *testing.T) {
	for name, c := range map[string]struct {
		took, left time.Duration // left 0 means much
		noRoom     bool          // at the endpoints when the request is late first
		stuck      bool
		most       int // hedges of a request
		burst      float64
		want       uint64
	}{
		"one":                                  {took: 50 * ms, most: 1, burst: 10, want: 1},
		"two":                                  {took: 50 * ms, most: 2, burst: 10, want: 2},
		"a token for one":                      {took: 50 * ms, most: 2, burst: 1, stuck: true, want: 1},
		"just time for one":                    {took: 50 * ms, left: 6 * ms, most: 2, burst: 10, want: 1},
		"no time":                              {took: 50 * ms, left: 6*ms - 1, most: 2, burst: 10, want: 0},
		"room later":                           {took: 50 * ms, noRoom: true, most: 1, burst: 10, want: 1},
		"room just before the response":        {took: 10*ms + 1, noRoom: true, most: 1, burst: 10, want: 1},
		"room only when the response has come": {took: 10 * ms, noRoom: true, most: 1, burst: 10, want: 0},
	} {
		of := defaults()
		of.Max, of.MinBurst, of.Budget = c.most, c.burst, 0
		r := &route{Shadow: New(of), delay: 5 * ms}
		w, first, second := Watch{Watched: true, Left: c.left, Asked: 905 * ms}, Watch{}, Watch{}
		if c.stuck {
			w.Stuck = 905 * ms
		}
		r.send(900*ms, &w, 0, false)
		r.send(905*ms, &first, 1, c.noRoom)
		r.send(910*ms, &second, 1, false)
		r.end(900*ms+c.took, &w, false)
		if got := r.current(960 * ms).Hedges; got != c.want {
			t.Errorf("%s: %d hedges, want %d", name, got, c.want)
		}
	}
}

// TestForecastAsks: while no other endpoint is available, a request asks model.asks times after the first time, and no more. An
// endpoint that is available within model.noteEvery of the last time is found.
func TestForecastAsks(t *testing.T) {
	last := ms + time.Duration(model.asks)*ms // the delay and the interval are 1 ms
	if got, want := millisecondsAsked(), float64((last+model.noteEvery)/ms); got != want {
		t.Errorf("a request finds an endpoint that is available after %v ms at the latest, want %v", got, want)
	}
}

// TestForecastOfUnknown: a request has no hedge if no other was sent at about the time at which it is late, but only later.
func TestForecastOfUnknown(t *testing.T) {
	for off, want := range map[time.Duration]uint64{model.reach: 1, model.reach + ms: 0} {
		r := &route{Shadow: New(defaults()), delay: 5 * ms}
		w := Watch{Watched: true, Asked: 905 * ms}
		r.primaries++
		r.send(900*ms, &w, 0, false)
		r.send(905*ms+off, new(Watch), 1, false)
		r.end(1100*ms, &w, false)
		if got := r.current(1100 * ms).Hedges; got != want {
			t.Errorf("another request %v later: %d hedges, want %d", off, got, want)
		}
	}
}

// TestLatenciesAdd: a bucket of a forecast is two of a distribution, each with half of its requests.
func TestLatenciesAdd(t *testing.T) {
	var l latencies
	var d histogram.Distribution
	l[3], l[4] = 5, -2
	l.addTo(&d)
	for i, want := range map[int]int64{5: 0, 6: 2, 7: 3, 8: -1, 9: -1, 10: 0} {
		if got := d.Counts[i]; got != want {
			t.Errorf("bucket %d has %d, want %d", i, got, want)
		}
	}
}

// With a delay of 0 the forecast asks no more often than the loop would, and sends
// no more hedges than there are tokens. A quarter of them is kept for stuck requests.
func TestForecastWithoutDelay(t *testing.T) {
	of := defaults()
	of.MinDelay, of.MaxDelay, of.Budget = 0, 0, 0
	r := shadowed(of, 0)
	if f := r.current(time.Second); f.Hedges != 7 || f.Latency.Samples() != 1000 {
		t.Errorf("%d hedges for %d requests, want 7 of the burst of 10 for 1000", f.Hedges, f.Latency.Samples())
	}
}

// While all endpoints are slow together, a hedge gains nothing.
func TestForecastOfACorrelatedStall(t *testing.T) {
	r := shadowed(defaults(), 5*ms)
	var ws [30]Watch
	sent := func(i int) time.Duration { return 1000*ms + time.Duration(i)*ms }
	for i := range ws {
		ws[i] = Watch{Watched: true, Asked: sent(i) + r.delay}
		r.primaries++
		r.send(sent(i), &ws[i], uint32(i%3), i > 15)
	}
	for i := range ws { // the stall of all endpoints ends
		r.end(1100*ms, &ws[i], false)
	}
	f := r.current(1200 * ms)
	if slowest, _ := f.Latency.Quantile(1); slowest < 90*ms {
		t.Errorf("slowest %v; the forecast gains from hedges in a stall of 100 ms", slowest)
	}
}

// TestForecastOfCutOff: a request that was cut off at its deadline stays so if no hedge would have come first.
func TestForecastOfCutOff(t *testing.T) {
	for took, hedges := range map[time.Duration]uint64{4 * ms: 0, 5*ms + ms/2: 1} {
		r := shadowed(defaults(), 5*ms)
		w := Watch{Watched: true, Left: 6 * ms, Asked: 905 * ms}
		r.send(900*ms, &w, 0, false)
		r.end(900*ms+took, &w, true)
		if f := r.current(time.Second); f.Hedges != hedges || f.Latency.Censored != 1 || f.Latency.Samples() != 1001 {
			t.Errorf("after %v: %d hedges, %d of %d requests are cut off", took, f.Hedges, f.Latency.Censored, f.Latency.Samples())
		}
	}
}

// TestForecastOfEachDelay: a request has a hedge with each delay after which it was late.
func TestForecastOfEachDelay(t *testing.T) {
	r := shadowed(defaults(), 10*ms)
	w := Watch{Watched: true}
	r.send(900*ms, &w, 0, false)
	r.end(905*ms, &w, false)
	for _, f := range r.all(time.Second) {
		if want := f.Delay < 5*ms; (f.Hedges == 1) != want || f.Hedges > 1 {
			t.Errorf("after %v: %d hedges of a request that takes 5 ms", f.Delay, f.Hedges)
		}
	}
}

// A loop that reaches the timer of the delay in force late delays the forecast for
// longer delays, but not for shorter ones.
func TestForecastsAfterALateTimer(t *testing.T) {
	r := shadowed(defaults(), 4*ms)
	w := Watch{Watched: true, Asked: 914 * ms}
	r.send(900*ms, &w, 0, false)
	r.end(950*ms, &w, false)
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
	of := defaults()
	of.MinDelay, of.MaxDelay = 2*ms, 10*ms
	var got []time.Duration
	for _, f := range (&route{Shadow: New(of), delay: 10 * ms}).all(0) {
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
}

func TestShadowDoesNotAllocate(t *testing.T) {
	if racetest.Enabled {
		t.Skip("the race detector allocates")
	}
	r := shadowed(defaults(), ms)
	at := time.Second
	if n := testing.AllocsPerRun(1000, func() {
		at += 2 * ms
		r.serve(at, 40*ms)
	}); n != 0 {
		t.Errorf("%v allocations per request", n)
	}
}

// BenchmarkShadow measures what shadow mode adds to a request. One of 50 is slow.
func BenchmarkShadow(b *testing.B) {
	r := shadowed(defaults(), ms)
	at, i := time.Second, 0
	b.ReportAllocs()
	for b.Loop() {
		at += 200 * time.Microsecond
		took := ms
		if i++; i%50 == 0 {
			took = 30 * ms
		}
		r.serve(at, took)
	}
}

// The forecast of a share of the requests is that of all.
func TestSample(t *testing.T) {
	const requests = 200_000
	forecast := func(sample float64) (Forecast, int) {
		of := defaults()
		of.Sample = sample
		r := &route{Shadow: New(of), delay: 5 * ms}
		rnd, watched := rand.New(rand.NewPCG(1, 2)), 0
		for i := range requests {
			took := time.Duration(float64(ms) * math.Exp(rnd.NormFloat64()/2))
			if i%500 < 10 {
				took += 20 * ms
			}
			if r.serve(time.Duration(i)*ms/4, took) {
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
	size := func(r *route) (bytes int) {
		bytes = len(r.timeline.ring) * int(unsafe.Sizeof(noted{}))
		for _, h := range r.halves {
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
	r := &route{Shadow: New(defaults()), delay: ms}
	for i := range 10_000 {
		r.primaries++
		r.end(time.Duration(i)*ms, &Watch{}, false)
	}
	if n := size(r); n != 0 {
		t.Errorf("%d bytes without a request that may be repeated", n)
	}
	for i := range 10_000 {
		r.serve(time.Duration(i)*100*ms, ms/2)
	}
	if n := size(r); n > 5<<10 {
		t.Errorf("%d bytes for few and quick requests, want at most 5 KiB", n)
	}
	for i := range 100_000 {
		took := ms
		if i%40 == 0 {
			took = 100 * ms
		}
		r.serve(time.Hour+time.Duration(i)*ms, took)
	}
	if n := size(r); n > 40<<10 || n < 30<<10 {
		t.Errorf("%d bytes for many and late requests, want at most 40 KiB", n)
	}
}

// So many routes of a loop are watched, those that need it first.
func TestQuota(t *testing.T) {
	var quota Quota
	watched := func() (s *Shadow, yes bool) {
		var w Watch
		s = New(defaults())
		for range 2 {
			s.Begin(&w, &quota)
		}
		return s, w.Watched && w.Hedgeable
	}
	first, _ := watched()
	for range maxWatched - 1 {
		if _, ok := watched(); !ok {
			t.Fatalf("a route is not watched with %d others", quota.taken)
		}
	}
	over, ok := watched()
	if ok {
		t.Errorf("more than %d routes are watched", maxWatched)
	}
	over.Retire(&quota)
	if _, ok := watched(); ok {
		t.Error("a route that was not watched left a part of the quota")
	}
	first.Retire(&quota)
	if _, ok := watched(); !ok {
		t.Error("a route that retired left no part of the quota")
	}
	if _, ok := watched(); ok {
		t.Error("a route that retired left more than its part of the quota")
	}
}

// TestSampleShare: the configured share of requests is watched.
func TestSampleShare(t *testing.T) {
	for _, share := range []float64{1, .5, .25, .1} {
		of := defaults()
		of.Sample = share
		s, watched := New(of), 0
		for range 10_000 {
			var w Watch
			if s.Begin(&w, nil); w.Watched {
				watched++
			}
		}
		if got := float64(watched) / 10_000; math.Abs(got-share) > share/20 {
			t.Errorf("a share of %v is watched, want %v", got, share)
		}
	}
}

// A tiny share is no reason to fail: few requests are watched, if any.
func TestSampleBounds(t *testing.T) {
	of := defaults()
	of.Sample = 1.0 / (1 << 32)
	r := &route{Shadow: New(of), delay: 5 * ms}
	watched := 0
	for i := range 1000 {
		if r.serve(time.Duration(i)*ms, ms) {
			watched++
		}
	}
	every, step := float64(r.every), float64(2*r.every-1)
	if watched == 0 || watched > 2 || every < 1<<16 || step != 2*every-1 {
		t.Errorf("%d of 1000 requests are watched, one in %v, the next after at most %v", watched, every, step)
	}
}

// TestLookAgain: the timer of a request that lasts for minutes fires seldom, and yet shows soon that the request is stuck.
func TestLookAgain(t *testing.T) {
	const interval, lasts = ms / 2, 10 * time.Minute
	w := Watch{Asked: time.Second}
	fired := 0
	for now := w.Asked; now < w.Asked+lasts; fired++ {
		wait := w.LookAgain(now, interval)
		if since := now - w.Asked; wait > max(interval, since/16) {
			t.Fatalf("%v after the first time the timer is armed for %v", since, wait)
		}
		if fired < 32 && wait != interval {
			t.Errorf("the timer is armed for %v after it has fired %d times, want %v", wait, fired, interval)
		}
		now += wait
	}
	if fired > 500 {
		t.Errorf("the timer fires %d times", fired)
	}
}

// TestNoteEvery: a primary is noted some time after the one before.
func TestNoteEvery(t *testing.T) {
	s := New(defaults())
	for _, c := range []struct {
		at   time.Duration
		want bool
	}{{0, false}, {model.noteEvery - 1, false}, {model.noteEvery, true}, {2*model.noteEvery - 1, false}, {2 * model.noteEvery, true}, {time.Hour, true}, {time.Hour + model.noteEvery - 1, false}} {
		var w Watch
		got := s.Sent(c.at, &w, 1)
		if got {
			s.Note(c.at, &w, false)
		}
		if got != c.want || w.Follows() != c.want {
			t.Errorf("at %v a primary is noted: %t", c.at, got)
		}
	}
}

// TestNotedOfSlowClass: a hedge of a quick request takes as long as the request of a slow class that was noted would have, if it
// were of the quick one. Requests that were cut off are among those that are watched.
func TestNotedOfSlowClass(t *testing.T) {
	r := &route{Shadow: New(defaults()), delay: 30 * ms, slower: 20}
	for i := range time.Duration(100) {
		r.serve(i*10*ms, 20*ms)
	}
	r.slower, r.delay = 1, 5*ms
	w := Watch{Watched: true, Asked: 905 * ms}
	r.send(900*ms, &w, 9, false)
	r.end(950*ms, &w, false)
	cut := Watch{Watched: true, Left: ms}
	r.send(960*ms, &cut, 9, false)
	r.end(961*ms, &cut, true)
	all, watched := r.Forecasts(time.Second, r.delay, 1)
	if n := watched.Samples(); n != 102 || watched.Censored != 1 {
		t.Errorf("%d are watched, of which %d were cut off", n, watched.Censored)
	}
	f := &all[0]
	if quick := f.Latency.Samples() - int64(f.Latency.LaterThan(7*ms)*102+.5); quick != 1 || f.Latency.Censored != 1 {
		t.Errorf("%d requests would be quick, %d cut off", quick, f.Latency.Censored)
	}
}
