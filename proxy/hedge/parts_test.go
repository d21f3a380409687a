package hedge

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/forecast"
	"github.com/remora-proxy/remora/proxy/hedge/histogram"
)

// TestScaled: latencies of all classes can be compared as if the requests were of the quickest class.
func TestScaled(t *testing.T) {
	r := unequal(t, 1000, 0, map[int]time.Duration{100: ms, 10_000: 10 * ms})
	for size, want := range map[int]time.Duration{100: 10 * ms, 10_000: ms} {
		c := r.Latencies.ClassOf(cacheAge, nil, size)
		if got := r.Latencies.Scaled(cacheAge, 10*ms, c); !within(got, want, .13) {
			t.Errorf("10 ms of a request of %d bytes are as %v of the quickest, want %v", size, got, want)
		}
		if got := r.Latencies.slower(cacheAge, c); !within(time.Duration(got*float64(want)), 10*ms, .13) {
			t.Errorf("a request of %d bytes takes %v times as long", size, got)
		}
	}
	if got := r.Latencies.Scaled(cacheAge, 10*ms, 0); got != 10*ms || r.Latencies.slower(cacheAge, 0) != 1 {
		t.Errorf("10 ms without a class are as %v of the quickest", got)
	}
}

// TestTokensOfService: streams earn tokens for paid retries as requests do. A refund gives one back, and a lost connection may
// take some that are not earned yet.
func TestTokensOfService(t *testing.T) {
	s := NewService(5)
	have := func(want float64) {
		t.Helper()
		if got := s.Tokens(0); got != want {
			t.Errorf("%v tokens, want %v", got, want)
		}
	}
	retry := func(want bool) {
		t.Helper()
		if got := s.Retry(0); got != want {
			t.Errorf("a retry is paid: %t", got)
		}
	}
	have(2)
	retry(true)
	retry(true)
	retry(false)
	s.Stream(0, .5)
	retry(false)
	s.Stream(0, .5)
	retry(true)
	s.Refund(0)
	have(1)
	for i, want := range []bool{true, true, true, false} {
		if got := s.RetryAhead(0, 2); got != want {
			t.Errorf("retry %d ahead is paid: %t", i, got)
		}
	}
	have(-2)
}

// TestLeastBurst: each of many loops has its part of the tokens, and at least one.
func TestLeastBurst(t *testing.T) {
	for loops, want := range map[int]float64{0: 10, 1: 10, 4: 2.5, 10: 1, 1000: 1} {
		if s := NewService(loops); s.Tokens(0) != want {
			t.Errorf("one of %d loops has %v tokens, want %v", loops, s.Tokens(0), want)
		}
	}
}

// TestSavingsUnknown: hedges are not given up while nobody knows what they save.
func TestSavingsUnknown(t *testing.T) {
	for _, unknown := range []bool{false, true} {
		var s Savings
		if unknown {
			s.Unknown()
		}
		for range 1000 {
			s.Judge(0, ms, 0)
		}
		if all := s.worth.OneIn() == 1; all != unknown {
			t.Errorf("unknown %t: one in %d decisions may hedge", unknown, s.worth.OneIn())
		}
	}
}

// TestSpread: the primaries that a hedge has overtaken have the latencies of those that finished nevertheless.
func TestSpread(t *testing.T) {
	var s Savings
	var e Estimator
	for range 10 {
		e.Observe(0, ms)
		e.Censor(0)
	}
	d := e.Distribution(0)
	if s.spread(0, &d); d.Censored != 10 {
		t.Errorf("without a hedge that won %d are censored", d.Censored)
	}
	s.Judge(0, 40*ms, 20*ms) // of a hedge that was not noted
	s.Overtaken(0, 20*ms)
	s.Judge(0, 40*ms, 20*ms)
	s.Judge(0, 80*ms, 0) // the primary came first
	s.spread(0, &d)
	if longest, ok := d.Quantile(1); d.Censored != 0 || !ok || !within(longest, 40*ms, .05) || d.Samples() != 20 {
		t.Errorf("%d of %d are censored, the longest takes %v", d.Censored, d.Samples(), longest)
	}
}

// TestShadowQuota: the routes that share a quota are watched as long as it lasts. A route that retires gives its part back.
func TestShadowQuota(t *testing.T) {
	p := *auto()
	p.Mode = Shadow
	var quota forecast.Quota
	watched := func() (*ShadowMode, bool) {
		s := NewRoute(p, 1).Shadow
		s.Bound(&quota)
		var w Watch
		s.Begin(&w)
		return s, w.Hedgeable
	}
	first, ok := watched()
	if !ok {
		t.Fatal("the first route is not watched")
	}
	n := 1
	for ; ok && n < 10_000; n++ {
		_, ok = watched()
	}
	if ok {
		t.Fatalf("%d routes are watched", n)
	}
	first.Retire()
	if _, ok = watched(); !ok {
		t.Error("a route that retired has left no part of the quota")
	}
	if out, seen := first.Forecasts(0, 0); out != nil || seen.Samples() != 0 {
		t.Error("there are forecasts for no delay")
	}
	if out, _ := first.Forecasts(0, 2); len(out) != 2 || !out[0].Current || out[0].Delay != first.route.Delays.Of(0, 0) {
		t.Errorf("forecasts for two delays: %d", len(out))
	}
	if out, _ := (*ShadowMode)(nil).Forecasts(0, 1); out != nil {
		t.Error("there are forecasts without shadow mode")
	}
}

// TestWindowOfChoice: the best delay is made of the last seconds once the slow requests of these are clearly more or fewer,
// and else of the last minute.
func TestWindowOfChoice(t *testing.T) {
	const before, now = 10 * time.Second, 40 * time.Second
	for name, c := range map[string]struct {
		n, slow int // in the last seconds; below 0 means that all are quick
		want    uint64
	}{
		"as many are slow": {2000, 0, 7000}, "more are slow": {2000, 150, 2000}, "fewer are slow": {2000, -1, 2000}, "too few to say": {999, 100, 5999},
		"just enough to say": {1000, 100, 1000},
	} {
		var e Estimator
		for i := range 5000 {
			e.Observe(before, ms+time.Duration(i)*time.Microsecond)
		}
		for i := range c.n {
			took := ms + time.Duration(i*5000/c.n)*time.Microsecond
			switch {
			case i < c.slow:
				took = 50 * ms
			case c.slow < 0:
				took = ms
			}
			e.Observe(now, took)
		}
		all, futile, ok := e.primaryLatencies(now)
		if got := uint64(all.Samples()); !ok || got != c.want || futile.Samples() != 0 {
			t.Errorf("%s: made of %d, want %d", name, got, c.want)
		}
	}
}

// TestWindowOfCensored: if the slow requests are given up, it is the share of these that must have changed.
func TestWindowOfCensored(t *testing.T) {
	const before, now = 10 * time.Second, 40 * time.Second
	for inThousand, want := range map[int]int64{40: 7000, 100: 2000, 10: 2000} {
		var e Estimator
		feed := func(at time.Duration, n, censored int) {
			observe(&e, n-censored, at, ms)
			for range censored {
				e.Censor(at)
			}
		}
		feed(before, 5000, 200)
		feed(now, 2000, 2*inThousand)
		if all, _, ok := e.primaryLatencies(now); !ok || all.Samples() != want {
			t.Errorf("of 1000 now %d are given up, and 40 were before: made of %d, want %d", inThousand, all.Samples(), want)
		}
	}
}

// TestFell: slow requests are clearly quicker if they take less than 1/1.4 of the time, or if they were given up before.
func TestFell(t *testing.T) {
	const ns, us = time.Nanosecond, time.Microsecond
	of := func(took time.Duration) *histogram.Distribution {
		var d histogram.Distribution
		if took < 0 {
			d.Censored = 1
		} else {
			d.Counts[histogram.BucketOf(took)] = 1
		}
		return &d
	}
	for _, c := range []struct {
		is, was time.Duration // -1 means that they are given up
		want    bool
	}{{12500 * ns, 17500 * ns, false}, {11500 * ns, 17500 * ns, true}, {12500 * ns, 12500 * ns, false}, {20 * us, 10 * us, false}, {10 * us, -1, true}, {-1, -1, false}, {-1, 10 * us, false}} {
		if got := fell(of(c.is), of(c.was)); got != c.want {
			t.Errorf("from %v to %v: %t", c.was, c.is, got)
		}
	}
}
