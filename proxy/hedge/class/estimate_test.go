package class

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/choice"
	"github.com/remora-proxy/remora/proxy/hedge/histogram"
)

// took are n requests of a latency; 0 means that they were given up.
type took struct {
	n       int
	latency time.Duration
}

// parted returns a set whose requests have had classes since a time, with the classes a and b, of which nothing is known.
func parted(now time.Duration) (s *Set, a, b ID) {
	s = &Set{}
	for range model.after / 2 {
		s.Of(now, nil, 10_000)
		a = s.Of(now, nil, 100)
	}
	return s, a, s.Of(now, nil, 10_000)
}

// note has requests of a class take their latencies.
func (s *Set) note(now time.Duration, c ID, all ...took) {
	for _, k := range all {
		for range k.n {
			if k.latency == 0 {
				s.Censor(now, c)
			} else {
				s.Observe(now, k.latency, c)
			}
		}
	}
}

// rankOf returns the latency that has a rank among n of one bucket.
func rankOf(rank, n int, latency time.Duration) time.Duration {
	b := histogram.BucketOf(latency) >> classShift << classShift
	low, high := histogram.LowOf(b), histogram.LowOf(b+1<<classShift)
	return high - (high-low)*time.Duration(n-rank)/time.Duration(n)
}

// TestNames: a class has the name that callers give, or the sizes of its bodies.
func TestNames(t *testing.T) {
	s, _, _ := parted(0)
	for size, want := range map[int]string{
		0: "0-63 bytes", 63: "0-63 bytes", 64: "64-127 bytes", 127: "64-127 bytes", 128: "128-255 bytes", 1<<20 - 1: "524288-1048575 bytes",
		1 << 20: "1048576 bytes and more", 1 << 40: "1048576 bytes and more",
	} {
		if got, _ := s.Describe(0, s.Of(0, nil, size)); got != want {
			t.Errorf("%d bytes are in the class %s, want %s", size, got, want)
		}
	}
	for _, name := range []string{"!", "~", "a", strings.Repeat("x", maxClassName)} {
		c := s.Of(0, []byte(name), 100)
		if c == 0 || s.Of(0, []byte(name), 10_000) != c {
			t.Fatalf("%q has the classes %d and %d", name, c, s.Of(0, []byte(name), 10_000))
		}
		if got, _ := s.Describe(0, c); got != name {
			t.Errorf("the class of %q is called %q", name, got)
		}
	}
	if c := s.Of(0, []byte("\x7f"), 0); c != 0 {
		t.Errorf("a name that can't be printed has the class %d", c)
	}
}

// TestFirstClass: there are classes once so many requests have a name, or a body of another size than the one before.
func TestFirstClass(t *testing.T) {
	for what, of := range map[string]func(s *Set, i int) ID{
		"sizes that alternate": func(s *Set, i int) ID { return s.Of(0, nil, []int{64, 128}[i%2]) },
		"names":                func(s *Set, _ int) ID { return s.Of(0, []byte("a"), 100) },
	} {
		var s Set
		for i := range model.after {
			if c := of(&s, i); (c != 0) != (i == model.after-1) || s.Len() != int(c) {
				t.Errorf("%s: request %d has the class %d", what, i, c)
			}
		}
	}
	for _, off := range []bool{false, true} {
		last, _, _ := parted(0)
		s := Set{Disabled: off}
		s.Inherit(last, false)
		if off == (s.Len() == 2) {
			t.Errorf("disabled %t: %d classes are inherited", off, s.Len())
		}
	}
}

// TestReplaced: a class that was unused for twice its longest half gives way. Its sizes then have no class.
func TestReplaced(t *testing.T) {
	s, a, b := parted(0)
	for size := 128; s.Len() < maxClasses; size *= 2 {
		if size != 8192 {
			s.Of(time.Second, nil, size)
		}
		if size > 1<<20 {
			s.Of(time.Second, []byte{'a' + byte(s.Len())}, 0)
		}
	}
	s.note(0, b, took{1, ms})
	if c := s.Of(2*model.longHalf-1, []byte("new"), 0); c != 0 {
		t.Errorf("class %d gives way a moment too early", c)
	}
	if c := s.Of(2*model.longHalf, []byte("new"), 0); c != a {
		t.Errorf("class %d gives way, want %d", c, a)
	}
	if _, n := s.Describe(2*model.longHalf, a); n != 0 {
		t.Errorf("the new class has %d requests", n)
	}
	if c := s.Of(2*model.longHalf, nil, 100); c != b {
		t.Errorf("the sizes of the class that gave way have the class %d, want the place of the other unused one", c)
	}
	if c := s.Of(2*model.longHalf, nil, 10_000); c != 0 {
		t.Errorf("the sizes of the other one have the class %d", c)
	}
}

// TestHalves: a half lasts until it has enough samples, and as long as it must; both halves count.
func TestHalves(t *testing.T) {
	for _, c := range []struct {
		first  []took
		at     time.Duration // of one more request
		read   time.Duration
		counts int
	}{
		{[]took{{99, ms}}, model.half, model.half, 100},
		{[]took{{100, ms}}, model.half - 1, model.half + model.longHalf - 1, 101}, // in the first half
		{[]took{{100, ms}}, model.half - 1, model.longHalf, 101},
		{[]took{{100, ms}}, model.half, model.half + model.longHalf, 1}, // in the second one
		{[]took{{100, ms}}, model.half, model.half + model.longHalf - 1, 101},
		{[]took{{99, ms}, {1, 0}}, model.half, model.half + model.longHalf, 1},
		{[]took{{99, ms}}, model.half, model.longHalf, 100},
		{[]took{{99, ms}}, model.longHalf - 1, 2*model.longHalf - 1, 100},
		{[]took{{99, ms}}, model.longHalf, 2 * model.longHalf, 1},
		{[]took{{99, ms}}, 2*model.longHalf - 1, 2*model.longHalf - 1, 100},
		{[]took{{99, ms}}, 2 * model.longHalf, 2 * model.longHalf, 1},
		{[]took{{100, ms}}, model.half, model.half + 2*model.longHalf, 0},
	} {
		s, a, _ := parted(0)
		s.note(0, a, c.first...)
		s.note(c.at, a, took{1, 2 * ms})
		if _, got := s.Describe(c.read, a); got != c.counts {
			t.Errorf("%v, then one at %v: %d count at %v, want %d", c.first, c.at, got, c.read, c.counts)
		}
	}
}

// TestQuantileRank: a quantile is interpolated among the requests of its bucket. If it is one that was given up, it is that of
// the others.
func TestQuantileRank(t *testing.T) {
	for _, c := range []struct {
		all  []took
		q    float64
		want time.Duration
		ok   bool
	}{
		{nil, .5, 0, false},
		{[]took{{4, ms}}, 0, rankOf(1, 4, ms), true},
		{[]took{{4, ms}}, .25, rankOf(1, 4, ms), true},
		{[]took{{4, ms}}, .26, rankOf(2, 4, ms), true},
		{[]took{{4, ms}}, 1, rankOf(4, 4, ms), true},
		{[]took{{3, ms}, {2, 5 * ms}}, .6, rankOf(3, 3, ms), true},
		{[]took{{3, ms}, {2, 5 * ms}}, .8, rankOf(1, 2, 5*ms), true},
		{[]took{{3, ms}, {1, 0}}, .75, rankOf(3, 3, ms), true},
		{[]took{{3, ms}, {1, 0}}, .76, rankOf(3, 3, ms), false},
		{[]took{{10, ms}, {90, 0}}, .5, rankOf(5, 10, ms), false},
		{[]took{{5, 0}}, .5, 0, false},
	} {
		s, a, _ := parted(0)
		s.note(0, a, c.all...)
		if got, ok := quantile(0, s.list[:1], c.q); got != c.want || ok != c.ok {
			t.Errorf("%v: the %v-quantile is %v, %t, want %v, %t", c.all, c.q, got, ok, c.want, c.ok)
		}
	}
}

// TestEstimate: classes that differ have delays of their own, unless the requests of all are alike. What has too few requests,
// or too many that were given up, has the delay that is still known.
func TestEstimate(t *testing.T) {
	const first, far = time.Millisecond, 10 * time.Millisecond
	tail := func(all, slow int, latency time.Duration) time.Duration {
		return rankOf(97*all/100-(all-slow), slow, latency)
	}
	whole := Whole{Quantile: .97, MaxDelay: 50 * ms, Tail: time.Second}
	for _, c := range []struct {
		name         string
		a, b         []took
		tail         time.Duration // of the route; 0 means a second
		aHas, bHas   time.Duration // the delays; 0 means that of the route
		aMean, bMean time.Duration // the medians
		slower       float64       // b than a
	}{
		{"they differ", []took{{200, first}}, []took{{200, far}}, 0, rankOf(194, 200, first), rankOf(194, 200, far), rankOf(100, 200, first), rankOf(100, 200, far),
			float64(rankOf(50, 200, far)) / float64(rankOf(50, 200, first))},
		{"the second is the quicker one", []took{{200, far}}, []took{{200, first}}, 0, rankOf(194, 200, far), rankOf(194, 200, first), rankOf(100, 200, far),
			rankOf(100, 200, first), 1},
		{"they are alike", []took{{200, first}}, []took{{200, first}}, 0, 0, 0, 0, 0, 1},
		{"their tails differ", []took{{200, first}}, []took{{180, first}, {20, far}}, 0, rankOf(194, 200, first), tail(200, 20, far), rankOf(100, 200, first),
			rankOf(100, 180, first), float64(rankOf(50, 180, first)) / float64(rankOf(50, 200, first))},
		{"little is known of one", []took{{200, first}}, []took{{99, far}}, 0, rankOf(194, 200, first), 0, rankOf(100, 200, first), 0, 1},
		{"enough is known of one", []took{{200, first}}, []took{{100, far}}, 0, rankOf(194, 200, first), rankOf(97, 100, far), rankOf(100, 200, first), rankOf(50, 100, far),
			float64(rankOf(25, 100, far)) / float64(rankOf(50, 200, first))},
		{"hardly anything is known of one", []took{{200, first}}, []took{{3, far}}, 0, 0, 0, 0, 0, 1},
		{"a little more is known of one", []took{{200, first}}, []took{{4, far}}, 0, rankOf(194, 200, first), 0, rankOf(100, 200, first), 0, 1},
		{"little is known of one, and the other is like the route", []took{{200, first}}, []took{{99, far}}, first, 0, 0, 0, 0, 1},
		{"the tail of one is not known", []took{{200, first}}, []took{{190, far}, {10, 0}}, 0, rankOf(194, 200, first), 50 * ms, rankOf(100, 200, first),
			rankOf(100, 190, far), float64(rankOf(50, 190, far)) / float64(rankOf(50, 200, first))},
		{"its tail is longer than the longest delay", []took{{200, first}}, []took{{190, 8 * far}, {10, 0}}, 0, rankOf(194, 200, first), rankOf(185, 190, 8*far),
			rankOf(100, 200, first), rankOf(100, 190, 8*far), float64(rankOf(50, 190, 8*far)) / float64(rankOf(50, 200, first))},
		{"only the typical latency is known", []took{{200, first}}, []took{{50, far}, {150, 0}}, 0, rankOf(194, 200, first), 50 * ms, rankOf(100, 200, first),
			rankOf(25, 50, far), float64(rankOf(50, 50, far)) / float64(rankOf(50, 200, first))},
	} {
		s, a, b := parted(0)
		s.note(0, a, c.a...)
		s.note(0, b, c.b...)
		w := whole
		if c.tail > 0 {
			w.Tail = c.tail
		}
		for id, want := range map[ID][2]time.Duration{a: {c.aHas, c.aMean}, b: {c.bHas, c.bMean}} {
			delay, median, own := s.Estimate(model.age, id, w)
			if delay != want[0] || own != (want[0] > 0) || own && median != want[1] {
				t.Errorf("%s: class %d has the delay %v and the median %v, want %v", c.name, id, delay, median, want)
			}
		}
		if got := s.Slower(model.age, b, w); got != c.slower {
			t.Errorf("%s: the second is %v times slower, want %v", c.name, got, c.slower)
		}
		if got := s.Scaled(model.age, time.Second, b, w); got != time.Duration(float64(time.Second)/c.slower) {
			t.Errorf("%s: a second is as %v of the quickest", c.name, got)
		}
	}
}

// TestTailKept: the delay of a class is the last tail that was known, as long as its typical latency is.
func TestTailKept(t *testing.T) {
	s, a, b := parted(0)
	s.note(0, a, took{200, ms})
	s.note(0, b, took{200, 10 * ms})
	known, _, _ := s.Estimate(model.age, b, whole)
	s.note(0, b, took{100, 0})
	if got, _, _ := s.Estimate(2*model.age-1, b, whole); got != known {
		t.Errorf("the delay is %v, computed anew too early", got)
	}
	if got, _, _ := s.Estimate(3*model.age, b, whole); got != known || known != rankOf(194, 200, 10*ms) {
		t.Errorf("the delay is %v, want %v", got, known)
	}
	later := 2*model.longHalf + model.age
	s.note(later, a, took{200, ms})
	s.note(later, b, took{50, 10 * ms})
	if _, _, own := s.Estimate(later, b, whole); own {
		t.Error("a class of which little is known has a delay")
	}
	s.note(later, b, took{150, 0})
	if got, _, _ := s.Estimate(later+model.age, b, whole); got != whole.MaxDelay {
		t.Errorf("the delay is %v, of a tail that was forgotten", got)
	}
}

// TestAlike: latencies are alike up to a factor, whichever is the longer one.
func TestAlike(t *testing.T) {
	for b, want := range map[time.Duration]bool{100: true, 140: true, 141: false, 72: true, 71: false} {
		if alike(100, b) != want || alike(b, 100) != want {
			t.Errorf("100 and %d are alike: %t", b, !want)
		}
	}
	kinds := func(typical, tail time.Duration) *class { return &class{typical: typical, tail: tail} }
	for _, c := range []struct {
		o    *class
		want bool
	}{
		{kinds(100, 1000), true}, {kinds(140, 1400), true}, {kinds(141, 1000), false}, {kinds(100, 1401), false}, {kinds(100, 0), true}, {kinds(0, 1000), false}, {kinds(0, 0), false},
	} {
		if got := kinds(100, 1000).alike(c.o); got != c.want {
			t.Errorf("%v and %v: %t", c.o.typical, c.o.tail, got)
		}
		if got := kinds(100, 0).alike(kinds(100, 1000)); !got {
			t.Error("a class whose tail is not known is unlike")
		}
	}
}

// TestChoose: the best delay of a class is that for all requests of the classes that are alike. One call chooses for one group,
// whose last choice was made before a time.
func TestChoose(t *testing.T) {
	futile := choice.Futile{Of: 1000}
	futile.Took.Counts[histogram.BucketOf(45*ms)] = 3
	in := choice.Limits{Min: ms, Max: 20 * ms, Budget: .05}
	s, a, b := parted(0)
	c := s.Of(0, []byte("c"), 0)
	s.note(0, a, took{970, 2 * ms}, took{20, 45 * ms}, took{10, 0})
	s.note(0, b, took{488, 30 * ms}, took{8, 200 * ms}, took{4, 0})
	s.note(0, c, took{500, 30 * ms})
	want := func(in choice.Limits, last choice.Choice, of ...ID) choice.Choice {
		var first histogram.Distribution
		for _, id := range of {
			for _, h := range s.list[id-1].halves {
				for i, n := range h.counts {
					first.Counts[i<<classShift] += int64(n)
				}
				first.Censored += int64(h.censored)
			}
		}
		return choice.Best(&first, &choice.Hedges{Futile: futile}, in, last)
	}
	at := func(now, before time.Duration, least int64) {
		s.Choose(now, before, least, in, func() choice.Futile { return futile })
	}
	check := func(what string, a1, b1 choice.Choice) {
		t.Helper()
		if *s.Best(a) != a1 || *s.Best(b) != b1 || *s.Best(c) != b1 {
			t.Errorf("%s: %+v, %+v and %+v, want %+v and %+v", what, *s.Best(a), *s.Best(b), *s.Best(c), a1, b1)
		}
	}
	at(0, 1, 1)
	check("nothing is alike yet", choice.Choice{}, choice.Choice{})
	s.Estimate(model.age, a, whole)
	long := in
	long.Max = math.MaxInt64
	ofA, ofB := want(in, choice.Choice{}, a), want(long, choice.Choice{}, b, c)
	if !ofA.Gains() || ofA.Delay >= in.Max || ofB.Delay <= in.Max {
		t.Fatalf("%+v and %+v", ofA, ofB)
	}
	at(model.age, 1, 1000)
	check("the first group", ofA, choice.Choice{})
	at(model.age, 1, 1000)
	check("the second group", ofA, ofB)
	at(2*model.age, model.age, 1000)
	check("all are new enough", ofA, ofB)
	s.note(0, a, took{30, 45 * ms})
	ofA = want(in, ofA, a)
	at(2*model.age, model.age+1, 1000)
	check("the first group again", ofA, ofB)
	at(2*model.age, model.age+1, 1001)
	check("too little is known of the second", ofA, choice.Choice{})
	_, in.Max, _ = s.Estimate(2*model.age, b, whole)
	at(3*model.age, 2*model.age+1, 1000)
	at(3*model.age, 2*model.age+1, 1000)
	check("they take as long as the longest delay", want(in, ofA, a), want(in, choice.Choice{}, b, c))
	new(Set).Choose(0, 1, 1, in, nil)
}
