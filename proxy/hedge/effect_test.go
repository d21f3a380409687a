package hedge

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/histogram"
)

// effect returns that on 10,000 requests of 1 ms, of which the given numbers took or take longer.
func effect(scale int64, without, with map[time.Duration]int64) *Effect {
	e := &Effect{Hedges: 270, Requests: 10_000}
	for _, of := range []struct {
		d    *histogram.Distribution
		slow map[time.Duration]int64
	}{{&e.Without, without}, {&e.With, with}} {
		rest := 10_000 / scale
		for took, n := range of.slow {
			rest -= n
			if took < 0 {
				of.d.Censored += n
			} else {
				of.d.Counts[histogram.BucketOf(took)] += n
			}
		}
		of.d.Counts[histogram.BucketOf(ms)] += rest
	}
	return e
}

func TestVerdict(t *testing.T) {
	type slow = map[time.Duration]int64
	for _, c := range []struct {
		name          string
		scale         int64
		without, with slow
		want          string
	}{
		{"rare freezes", 1, slow{50 * ms: 40, 5 * ms: 200}, slow{4 * ms: 240},
			"hedging would take 1.1 ms off P99 and 46 ms off P99.9 at 2.7% extra load"},
		{"frequent freezes", 1, slow{50 * ms: 400}, slow{4 * ms: 400},
			"hedging would take 46 ms off P99 and 46 ms off P99.9 at 2.7% extra load"},
		{"less than a tenth", 1, slow{50 * ms: 400}, slow{46 * ms: 400},
			"hedging would bring nothing here: 2.7% extra load saved"},
		{"lost requests", 1, slow{-1: 40}, slow{4 * ms: 40},
			"hedging would take the timeouts off P99.9 at 2.7% extra load"},
		{"requests that are lost in any case", 1, slow{-1: 40}, slow{-1: 40},
			"hedging would bring nothing here: 2.7% extra load saved"},
		{"enough for P99", 10, slow{50 * ms: 40}, slow{4 * ms: 40},
			"hedging would take 46 ms off P99 at 2.7% extra load"},
		{"P99.9 unknown, and no gain for P99", 10, slow{50 * ms: 4}, slow{4 * ms: 4},
			"too few requests that may be hedged to say yet"},
		{"few", 100, slow{50 * ms: 40}, slow{4 * ms: 40},
			"too few requests that may be hedged to say yet"},
	} {
		if got := effect(c.scale, c.without, c.with).Verdict(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	for _, c := range []struct {
		without, with slow
		want          string
	}{
		{slow{50 * ms: 40}, slow{4 * ms: 40}, "hedging takes 46 ms off P99.9 at 2.7% extra load"},
		{slow{-1: 40}, slow{4 * ms: 40}, "hedging takes an unknown time off P99.9 at 2.7% extra load"},
		{slow{50 * ms: 400}, slow{46 * ms: 400}, "hedging brings nothing here: 2.7% extra load"},
	} {
		e := effect(1, c.without, c.with)
		e.Mode = On
		if got := e.Verdict(); got != c.want {
			t.Errorf("mode on: %q, want %q", got, c.want)
		}
	}
	single := effect(1, slow{50 * ms: 40}, slow{4 * ms: 40})
	single.Hedges, single.Requests = 1, 1
	if got, want := single.Verdict(), "hedging would take 46 ms off P99.9 at 100.0% extra load"; got != want {
		t.Errorf("one hedge of one request: %q, want %q", got, want)
	}
	both := effect(10, slow{50 * ms: 40}, slow{4 * ms: 40})
	both.Add(effect(1, slow{10 * ms: 400}, slow{10 * ms: 400}))
	if got, want := both.Verdict(), "hedging would take 40 ms off P99.9 at 2.7% extra load"; got != want {
		t.Errorf("two routes: %q, want %q", got, want)
	}
	for _, oneIn := range []int{1, 64, 8} {
		both.Add(&Effect{OneIn: oneIn})
	}
	if both.OneIn != 64 {
		t.Errorf("one in %d decisions may hedge where the fewest may, want one in 64", both.OneIn)
	}
	if got, want := new(Effect).Verdict(), "too few requests that may be hedged to say yet"; got != want {
		t.Errorf("no request: %q, want %q", got, want)
	}
}

// TestLeastGain: a tenth is worth the hedges.
func TestLeastGain(t *testing.T) {
	const us = time.Microsecond
	for with, want := range map[time.Duration]string{
		117 * us: "hedging would take 0.013 ms off P99 and 0.013 ms off P99.9 at 2.0% extra load", 119 * us: "hedging would bring nothing here: 2.0% extra load saved",
	} {
		e := &Effect{Hedges: 2, Requests: 100}
		e.Without.Counts[histogram.BucketOf(130*us)], e.With.Counts[histogram.BucketOf(with)] = 4000, 4000
		if got := e.Verdict(); got != want {
			t.Errorf("130 µs become %v: %q, want %q", with, got, want)
		}
	}
}

// TestEnoughToSay: a quantile is known from so many requests on that four are beyond it.
func TestEnoughToSay(t *testing.T) {
	for n, want := range map[int64]string{
		399: "too few requests that may be hedged to say yet", 400: "hedging would take 46 ms off P99 at 2.0% extra load",
		3999: "hedging would take 46 ms off P99 at 2.0% extra load", 4000: "hedging would take 46 ms off P99 and 46 ms off P99.9 at 2.0% extra load",
	} {
		e := &Effect{Hedges: 2, Requests: 100}
		e.Without.Counts[histogram.BucketOf(50*ms)], e.With.Counts[histogram.BucketOf(4*ms)] = n, n
		if got := e.Verdict(); got != want {
			t.Errorf("%d requests: %q, want %q", n, got, want)
		}
	}
}

// Overtaken primaries count with their own latency once they have ended, and as slower than
// all until then.
func TestEffect(t *testing.T) {
	r := NewRoute(Policy{Mode: On, Quantile: .97, MaxDelay: 50 * ms, Budget: .05, Max: 1}, 1)
	for range 98 {
		r.Latencies.Observe(0, ms, 0)
	}
	for range 2 {
		r.Latencies.Censor(5*ms, 0)
		r.Savings.Overtaken(5*ms, 5*ms)
	}
	check := func(what string, d *histogram.Distribution, want time.Duration, known bool) {
		t.Helper()
		got, ok := d.Quantile(.99)
		if d.Samples() != 100 || ok != known || got < want-want/32 || got > want+want/32 {
			t.Errorf("%s: P99 of %d is %v, %t; want %v, %t", what, d.Samples(), got, ok, want, known)
		}
	}
	r.Counts = Counts{Primaries: 100, Hedges: 5, HedgesMissed: 2}
	e := r.Effect(5 * ms)
	if e.Mode != On || e.Requests != 100 || e.Hedges != 3 || e.OneIn != 1 {
		t.Errorf("%v hedges of %v requests, one in %d", e.Hedges, e.Requests, e.OneIn)
	}
	check("with", &e.With, 5*ms, true)
	check("without", &e.Without, 0, false)
	r.Savings.Judge(40*ms, 40*ms, 35*ms)
	r.Savings.Judge(40*ms, 40*ms, 35*ms)
	e = r.Effect(40 * ms)
	check("with", &e.With, 5*ms, true)
	check("without, when the primaries have ended", &e.Without, 40*ms, true)
	if off := NewRoute(Policy{Mode: Shadow, Delay: ms}, 1); off.Effect(0) != nil {
		t.Error("an effect without hedges")
	}
}
