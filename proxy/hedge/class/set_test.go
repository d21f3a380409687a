package class

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/histogram"
)

const ms = time.Millisecond

var whole = Whole{Quantile: .97, MaxDelay: 50 * ms}

// learn has n requests of each size take their latency, a twentieth of them twice that.
func learn(s *Set, n int, at time.Duration, latencies map[int]time.Duration) {
	sizes := slices.Sorted(maps.Keys(latencies)) // which class comes first matters
	for i := range n {
		for _, size := range sizes {
			latency := latencies[size]
			if i%20 == 0 {
				latency *= 2
			}
			if c := s.Of(at, nil, size); c > 0 {
				s.Observe(at, latency, c)
			}
		}
	}
}

// own returns the delay of requests of a size; 0 means that the class has the delay of the route.
func (s *Set) own(now time.Duration, size int) time.Duration {
	c := s.Of(now, nil, size)
	if c == 0 {
		return 0
	}
	delay, _, _ := s.Estimate(now, c, whole)
	return delay
}

// TestEqualRequests: where requests are equal, or classes are off, there is no memory for classes.
func TestEqualRequests(t *testing.T) {
	for name, s := range map[string]*Set{"equal": {}, "off": {Disabled: true}} {
		for i := range 10_000 {
			size := 1024 + i%1024
			if s.Disabled {
				size = i
			}
			if c := s.Of(0, nil, size); c != 0 || s.table != nil {
				t.Fatalf("%s: request %d has class %d", name, i, c)
			}
		}
	}
}

// TestBounds: there are at most 16 classes. Unused ones make room after a minute.
func TestBounds(t *testing.T) {
	var s Set
	named := func(now time.Duration, i int) ID { return s.Of(now, []byte("class-"+strconv.Itoa(i)), 0) }
	seen := map[ID]bool{}
	for i := range 1000 {
		seen[named(0, i)] = true
	}
	if len(seen) != maxClasses+1 || s.Len() != maxClasses {
		t.Fatalf("%d classes, want %d, and none", len(seen), maxClasses)
	}
	if c := s.Of(0, nil, 1<<20); c != 0 {
		t.Errorf("a size has class %d though there are too many", c)
	}
	for _, name := range []string{"a b", "\x00", "é", strings.Repeat("x", maxClassName+1)} {
		if c := s.Of(2*model.longHalf, []byte(name), 0); c != 0 {
			t.Errorf("%q has class %d", name, c)
		}
	}
	if c := named(2*model.longHalf, 1000); c == 0 {
		t.Error("unused classes are kept")
	}
	if c := s.Of(2*model.longHalf, nil, 1<<20); c == 0 || s.Of(2*model.longHalf, nil, 1<<21) != c {
		t.Error("there is no class for a size, though names are unused")
	}
}

// TestInheritQuantile: the last finite quantile of a class is not that of another setting.
func TestInheritQuantile(t *testing.T) {
	var last, s Set
	learn(&last, 1000, 0, map[int]time.Duration{100: ms, 10_000: 10 * ms})
	last.own(model.age, 100)
	s.Inherit(&last, true)
	short := s.Of(0, nil, 100)
	for range 3000 { // more than half are censored
		s.Censor(2*model.age, short)
	}
	s.own(2*model.age, 100)
	if c := s.list[short-1]; c.typical == 0 || c.tail != 0 {
		t.Errorf("of lower quartile %v the tail is %v, want one that is unknown", c.typical, c.tail)
	}
}

// TestForgets: a half of a window lasts 5 to 30 s, until it has enough samples.
func TestForgets(t *testing.T) {
	for _, c := range []struct {
		name        string
		first, then int           // samples
		later       time.Duration // when the second ones are
		want        int           // samples that count
	}{
		{"busy", 1000, 1000, 4 * time.Second, 2000},
		{"the next half", 1000, 1000, 5 * time.Second, 2000},
		{"rare", 10, 10, 25 * time.Second, 20},
		{"old", 1000, 1000, 30 * time.Second, 2000},
		{"older", 1000, 1000, 60 * time.Second, 1000},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := &class{}
			for range c.first {
				k.at(0).finite++
			}
			for range c.then {
				k.at(c.later).finite++
			}
			if got := k.samples(c.later); got != c.want {
				t.Errorf("%d samples, want %d", got, c.want)
			}
			k.at(c.later + model.half)
			if got := k.samples(c.later + 2*model.half + model.longHalf); got > c.then {
				t.Errorf("%d samples are kept, of %d", got, c.then)
			}
			if got := k.samples(c.later + model.half + 2*model.longHalf); got != 0 {
				t.Errorf("%d samples are kept after a minute", got)
			}
		})
	}
}

// TestQuantile: a quantile is within a bucket of the exact one, and not sooner than most
// requests if all take equally long.
func TestQuantile(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		k, n, q := &class{}, 1+rnd.IntN(2000), 0.5+rnd.Float64()/2.1
		var exact []time.Duration
		middle := math.Exp(rnd.Float64()*8) * float64(100*time.Microsecond)
		for range n {
			d := time.Duration(math.Exp(rnd.NormFloat64()) * middle)
			exact = append(exact, d)
			k.at(0).finite++
			k.at(0).counts[histogram.BucketOf(d)>>classShift]++
		}
		slices.Sort(exact)
		want := exact[int(math.Ceil(q*float64(n)))-1]
		if got, ok := quantile(0, []*class{k}, q); !ok || math.Abs(float64(got-want)) > .13*float64(want) && want < time.Minute {
			t.Errorf("the %v-quantile of %d is %v, want %v", q, n, got, want)
		}
	}
	k := &class{}
	for range 1000 {
		k.at(0).finite++
		k.at(0).counts[histogram.BucketOf(5*time.Millisecond)>>classShift]++
	}
	if got, _ := quantile(0, []*class{k}, .97); got < 5*time.Millisecond {
		t.Errorf("the 0.97-quantile is %v where all take 5 time.Millisecond", got)
	}
}
