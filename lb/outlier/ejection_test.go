package outlier

import (
	"slices"
	"testing"
	"time"
)

// TestEjection: each further ejection lasts twice as long, unless the endpoint has served for as long as it was ejected.
func TestEjection(t *testing.T) {
	const base = 10 * sec
	var x Ejection
	eject := func(now, lasts time.Duration) (over time.Duration) {
		t.Helper()
		x.Begin(now, base, BySuccessRate)
		if why, ejected := x.Ejected(); !ejected || why != BySuccessRate || x.Over(now+lasts-1) || !x.Over(now+lasts) {
			t.Errorf("at %v: ejected %t by %v, until %v, want for %v", now, ejected, why, x.until, lasts)
		}
		return now + lasts
	}
	now := eject(100*sec, base)
	x.Extend(now, base)
	now += 2 * base
	if !x.Over(now) || x.Over(now-1) || x.Count() != 2 {
		t.Errorf("extended until %v, want %v; ejected %d times", x.until, now, x.Count())
	}
	x.End(now)
	if _, ejected := x.Ejected(); ejected {
		t.Error("ejected after the end")
	}
	now = eject(now+2*base-1, 4*base) // it served for a moment less than it was ejected
	x.End(now)
	now = eject(now+4*base, base) // it served for as long
	x.Cancel()
	if _, ejected := x.Ejected(); ejected || x.Count() != 4 {
		t.Errorf("cancelled: ejected %t, %d times", ejected, x.Count())
	}
	x = Ejection{}
	now = eject(now, base)
	for n := range 10 {
		x.Extend(now, base)
		if now += time.Duration(min(2<<n, 64)) * base; !x.Over(now) || x.Over(now-1) {
			t.Errorf("extended %d times: until %v, want %v", n+1, x.until, now)
		}
	}
}

// TestProbeDue: a probe is due when the time is over, and again after as long without an outcome.
func TestProbeDue(t *testing.T) {
	var x Ejection
	if x.ProbeDue(100*sec, 0) {
		t.Error("due at an endpoint that serves")
	}
	x.Begin(100*sec, 10*sec, ByLatency)
	for _, c := range []struct {
		now, started time.Duration
		want         bool
	}{
		{110*sec - 1, 0, false}, {110 * sec, 0, true}, {110 * sec, 110*sec - 1, true}, {110 * sec, 110 * sec, false},
		{120*sec - 1, 110 * sec, false}, {120 * sec, 110 * sec, true},
	} {
		if got := x.ProbeDue(c.now, c.started); got != c.want {
			t.Errorf("at %v, the last attempt began at %v: due %t", c.now, c.started, got)
		}
	}
}

// TestTotals: a record has both halves of its time.
func TestTotals(t *testing.T) {
	var r Record
	for _, at := range []time.Duration{0, model.half} {
		for range 3 {
			r.Count(at, true)
		}
		for range 2 {
			r.Count(at, false)
		}
		r.CountLatency(at, 5)
	}
	if good, bad := r.totals(); good != 6 || bad != 4 {
		t.Errorf("%v good and %v bad, want 6 and 4", good, bad)
	}
	if sum, n := r.Latencies(); sum != 10 || n != 2 {
		t.Errorf("a sum of %v of %d latencies, want 10 of 2", sum, n)
	}
	share := (6 + model.prior) / (10 + model.prior)
	if got := r.Discount(); got != share*share*share {
		t.Errorf("a discount of %v, want %v", got, share*share*share)
	}
}

// TestOldOutcomes: each half of the record is forgotten when it is two halves old.
func TestOldOutcomes(t *testing.T) {
	for age, want := range map[time.Duration]float64{model.half - 1: 1, model.half: 1, 2*model.half - 1: 1, 2 * model.half: 0} {
		var r Record
		r.Count(0, true)
		if r.Expire(age); r.halves[0].good+r.halves[1].good != uint32(want) {
			t.Errorf("after %v: %+v, want %v good", age, r.halves, want)
		}
	}
	var two Record
	two.Count(0, true)
	two.Count(model.half, true)
	if two.Expire(2 * model.half); two.halves[0].good+two.halves[1].good != 1 {
		t.Errorf("of two halves: %+v, want the later one", two.halves)
	}
	var r Record
	for i, good := range []bool{false, false, true, false} {
		r.Count(0, good)
		if failed, _ := r.Streak(0); failed != []int{1, 2, 0, 1}[i] {
			t.Errorf("after %d attempts: %d failures in a row", i+1, failed)
		}
	}
}

// TestEnoughLatencies: a mean needs enough latencies.
func TestEnoughLatencies(t *testing.T) {
	var r Record
	for n := uint32(1); n <= model.enough; n++ {
		r.CountLatency(0, 7)
		if mean, ok := r.Mean(); ok != (n == model.enough) || ok && mean != 7 || !ok && mean != 0 {
			t.Errorf("of %d: %v, %t", n, mean, ok)
		}
	}
}

// TestFailing: which records have too many failures.
func TestFailing(t *testing.T) {
	for _, c := range []struct {
		name      string
		rules     Rules
		good, bad int // the bad ones are last
		why       Reason
		want      bool
	}{
		{"no rules", Rules{}, 0, 1000, 0, false},
		{"enough in a row", Rules{Consecutive: 5}, 10, 5, ByConsecutive, true},
		{"one in a row", Rules{Consecutive: 1}, 10, 1, ByConsecutive, true},
		{"too few in a row", Rules{Consecutive: 5}, 10, 4, 0, false},
		{"a low rate", Rules{SuccessRate: .5}, 9, 11, BySuccessRate, true},
		{"the least rate", Rules{SuccessRate: .5}, 10, 10, 0, false},
		{"too few attempts", Rules{SuccessRate: .5}, 0, 19, 0, false},
		{"enough attempts", Rules{SuccessRate: .5}, 0, 20, BySuccessRate, true},
		{"both", Rules{Consecutive: 11, SuccessRate: .5}, 9, 11, ByConsecutive, true},
	} {
		var r Record
		for range c.good {
			r.Count(0, true)
		}
		for range c.bad {
			r.Count(0, false)
		}
		if why, failing := c.rules.Failing(&r); failing != c.want || failing && why != c.why {
			t.Errorf("%s: %t by %v", c.name, failing, why)
		}
	}
}

// TestSlow: means that are so many times as long as the median of the others are too long.
func TestSlow(t *testing.T) {
	for _, c := range []struct {
		means []time.Duration
		want  []int // indices
	}{
		{nil, nil}, {[]time.Duration{9}, nil}, {[]time.Duration{1, 3}, nil}, {[]time.Duration{1, 4}, []int{1}}, {[]time.Duration{4, 1}, []int{0}},
		{[]time.Duration{1, 2, 7}, []int{2}}, {[]time.Duration{2, 7, 4}, []int{1}}, {[]time.Duration{2, 6, 4}, nil},
		{[]time.Duration{1, 1, 1, 5, 4}, []int{4, 3}}, {[]time.Duration{1, 2, 9, 9}, []int{2, 3}}, {[]time.Duration{1, 9, 9, 9}, nil},
	} {
		var means []Mean
		for i, m := range c.means {
			means = append(means, Mean{i, m})
		}
		var got []int
		for _, m := range (&Rules{Latency: 3}).Slow(means) {
			got = append(got, m.Index)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: %v are slow, want %v", c.means, got, c.want)
		}
	}
}

// TestMost: a share of endpoints is rounded down.
func TestMost(t *testing.T) {
	for share, want := range map[float64]int{0: 0, .1: 1, .19: 1, .2: 2, .3: 3, .7: 7, 1: 10} {
		if got := (&Rules{MaxEjected: share}).Most(10); got != want {
			t.Errorf("%v of 10: %d, want %d", share, got, want)
		}
	}
}
