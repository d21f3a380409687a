package hedge

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/histogram"
)

// unequal is a route that has learned of n requests of each size, in turn, at the time at.
func unequal(t *testing.T, n int, at time.Duration, latencies map[int]time.Duration) *Route {
	t.Helper()
	r := NewRoute(*auto(), 1)
	learn(r, n, at, latencies)
	return r
}

// learn has n requests of each size take their latency, a twentieth of them twice that.
func learn(r *Route, n int, at time.Duration, latencies map[int]time.Duration) {
	for i := range n {
		for size, latency := range latencies {
			if i%20 == 0 {
				latency *= 2
			}
			r.Answered(at, latency, &Watch{Class: r.ClassOf(at, nil, size)})
		}
	}
}

func (r *Route) delayOfSize(now time.Duration, size int) time.Duration {
	return r.DelayOf(now, r.ClassOf(now, nil, size))
}

func within(got, want time.Duration, share float64) bool {
	return math.Abs(float64(got-want)) <= share*float64(want)
}

// TestClassDelays: short and long requests of one route have delays of their own.
func TestClassDelays(t *testing.T) {
	r := unequal(t, 1000, 0, map[int]time.Duration{100: ms, 10_000: 10 * ms})
	for range 20 { // of a size that is new
		r.ClassOf(0, nil, 1_000_000)
	}
	now := cacheAge
	if got := r.delayOfSize(now, 100); !within(got, 2*ms, .13) {
		t.Errorf("the delay of short requests is %v, want 2 ms", got)
	}
	if got := r.delayOfSize(now, 10_000); !within(got, 20*ms, .13) {
		t.Errorf("the delay of long requests is %v, want 20 ms", got)
	}
	if got := r.delayOfSize(now, 1_000_000); got != r.Delay(now) {
		t.Errorf("the delay of requests of which nothing is known is %v, want that of the route, %v", got, r.Delay(now))
	}
}

// TestClassMerge: classes that are alike have the delay of the route, and react as fast. Those that
// are not have that of their group.
func TestClassMerge(t *testing.T) {
	r := unequal(t, 1000, 0, map[int]time.Duration{100: 4 * ms, 1000: 5 * ms})
	for _, now := range []time.Duration{time.Second, 3 * time.Second} {
		for _, size := range []int{100, 1000} {
			if got := r.delayOfSize(now, size); got != r.Delay(now) {
				t.Errorf("at %v the delay of alike classes is %v, want that of the route, %v", now, got, r.Delay(now))
			}
		}
		learn(r, 1000, 2*time.Second, map[int]time.Duration{100: 8 * ms, 1000: 10 * ms})
	}
	for _, at := range []time.Duration{20 * time.Second, 25 * time.Second} {
		learn(r, 1000, at, map[int]time.Duration{100: ms, 1000: ms, 10_000: 10 * ms})
	}
	now := 25*time.Second + cacheAge
	short := r.delayOfSize(now, 100)
	if other := r.delayOfSize(now, 1000); short != other || !within(short, 2*ms, .13) {
		t.Errorf("the delays of two alike classes are %v and %v, want 2 ms", short, other)
	}
	if got := r.delayOfSize(now, 10_000); !within(got, 20*ms, .13) {
		t.Errorf("the delay of the class unlike them is %v, want 20 ms", got)
	}
}

// TestClassOfRareRequests: the requests of a class with too few samples are the tail of the route.
// The class of the others has a delay of its own nevertheless.
func TestClassOfRareRequests(t *testing.T) {
	r := unequal(t, 0, 0, nil)
	for range 70 { // alternately, so that they become classes
		learn(r, 1, 0, map[int]time.Duration{100: ms})
		learn(r, 1, 0, map[int]time.Duration{10_000: 10 * ms})
	}
	learn(r, 900, 0, map[int]time.Duration{100: ms})
	if route := r.Delay(cacheAge); route < 10*ms {
		t.Fatalf("the delay of the route is %v, not that of long requests", route)
	}
	if got := r.delayOfSize(cacheAge, 100); !within(got, 2*ms, .13) {
		t.Errorf("the delay of short requests is %v, want 2 ms", got)
	}
}

// TestOneClass: where requests are equal, or classes are off, a route has none.
func TestOneClass(t *testing.T) {
	r := NewRoute(*auto(), 1)
	for i := range 10_000 {
		if c := r.ClassOf(0, nil, 1024+i%1024); c != 0 {
			t.Fatalf("request %d has class %d", i, c)
		}
	}
	if r.classes != nil {
		t.Error("there is memory for classes")
	}
	p := auto()
	p.OneClass = true
	r = NewRoute(*p, 1)
	for i := range 10_000 {
		if c := r.ClassOf(0, []byte("a"), i); c != 0 || r.classes != nil {
			t.Fatalf("request %d has class %d", i, c)
		}
	}
}

// TestClassBounds: a route has at most 16 classes. Unused ones make room after a minute.
func TestClassBounds(t *testing.T) {
	r := NewRoute(*auto(), 1)
	named := func(now time.Duration, i int) Class { return r.ClassOf(now, []byte("class-"+strconv.Itoa(i)), 0) }
	seen := map[Class]bool{}
	for i := range 1000 {
		seen[named(0, i)] = true
	}
	if len(seen) != maxClasses+1 || len(r.classes.list) != maxClasses || len(r.Classes(0)) != maxClasses {
		t.Fatalf("%d classes, want %d, and none", len(seen), maxClasses)
	}
	if c := r.ClassOf(0, nil, 1<<20); c != 0 {
		t.Errorf("a size has class %d though there are too many", c)
	}
	for now := time.Duration(0); now < 2*longHalf; now += time.Second {
		r.Answered(now, ms, &Watch{Class: named(now, 500)}) // unseen, or none
	}
	for _, name := range []string{"", "a b", "\x00", "é", strings.Repeat("x", maxClassName+1)} {
		if c := r.classes.named(2*longHalf, []byte(name)); c != 0 && name != "" {
			t.Errorf("%q has class %d", name, c)
		}
	}
	if c := named(2*longHalf, 1000); c == 0 {
		t.Error("unused classes are kept")
	}
	if c := r.ClassOf(2*longHalf, nil, 1<<20); c == 0 || r.ClassOf(2*longHalf, nil, 1<<21) != c {
		t.Error("there is no class for a size, though names are unused")
	}
}

// TestClassCensor: attempts that were given up keep a class's delay up, as they do a route's.
func TestClassCensor(t *testing.T) {
	r := unequal(t, 1000, 0, map[int]time.Duration{100: ms, 10_000: 10 * ms})
	before := r.delayOfSize(cacheAge, 100)
	for range 100 {
		r.Late(cacheAge, &Watch{Class: r.ClassOf(cacheAge, nil, 100)})
	}
	now := 2 * cacheAge
	if got := r.delayOfSize(now, 100); got != before {
		t.Errorf("the delay is %v after late requests, want the last one known, %v", got, before)
	}
}

// TestClassForgets: a half of a window lasts 5 to 30 s, until it has enough samples.
func TestClassForgets(t *testing.T) {
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
			k.at(c.later + shortHalf)
			if got := k.samples(c.later + 2*shortHalf + longHalf); got > c.then {
				t.Errorf("%d samples are kept, of %d", got, c.then)
			}
			if got := k.samples(c.later + shortHalf + 2*longHalf); got != 0 {
				t.Errorf("%d samples are kept after a minute", got)
			}
		})
	}
}

// TestClassQuantile: a quantile is within a bucket of the exact one, and not sooner than most
// requests if all take equally long.
func TestClassQuantile(t *testing.T) {
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
		if got, ok := classQuantile(0, []*class{k}, q); !ok || !within(got, want, .13) && want < time.Minute {
			t.Errorf("the %v-quantile of %d is %v, want %v", q, n, got, want)
		}
	}
	k := &class{}
	for range 1000 {
		k.at(0).finite++
		k.at(0).counts[histogram.BucketOf(5*ms)>>classShift]++
	}
	if got, _ := classQuantile(0, []*class{k}, .97); got < 5*ms {
		t.Errorf("the 0.97-quantile is %v where all take 5 ms", got)
	}
}

// TestClassDeadline: the gate deadline asks for the median of the class.
func TestClassDeadline(t *testing.T) {
	r := unequal(t, 1000, 0, map[int]time.Duration{100: ms, 10_000: 10 * ms})
	s := NewService(1)
	for size, want := range map[int]Gate{100: Open, 10_000: Deadline} {
		q := Question{Class: r.ClassOf(0, nil, size), Idempotent: true, Endpoints: 3, Heard: 3, Untried: 1, Left: 5 * ms}
		if got := s.Decide(cacheAge, r, &q); got != want {
			t.Errorf("gate %v for a request of %d bytes, want %v", got, size, want)
		}
	}
}

// TestClassInherit: a reload keeps what is known, unless it ends classes.
func TestClassInherit(t *testing.T) {
	old := unequal(t, 1000, 0, map[int]time.Duration{100: ms, 10_000: 10 * ms})
	r := NewRoute(*auto(), 1)
	r.Inherit(old)
	if got, want := r.delayOfSize(cacheAge, 100), old.delayOfSize(cacheAge, 100); got != want {
		t.Errorf("delay %v after a reload, want %v", got, want)
	}
	p := auto()
	p.OneClass = true
	r = NewRoute(*p, 1)
	r.Inherit(old)
	if got := r.delayOfSize(cacheAge, 100); got != old.Delay(cacheAge) {
		t.Errorf("delay %v without classes, want that of the route", got)
	}
}

// TestClassAllocations: requests with classes allocate nothing.
func TestClassAllocations(t *testing.T) {
	r := unequal(t, 1000, 0, map[int]time.Duration{100: ms, 10_000: 10 * ms})
	names := [][]byte{nil, nil, []byte("bulk"), []byte("a class name that is too long for a class, and so is heeded by no one")}
	now, i := time.Duration(0), 0
	request := func() {
		now += 10 * ms
		i++
		c := r.ClassOf(now, names[i%len(names)], i%2*10_000)
		r.DelayOf(now, c)
		r.Answered(now, time.Duration(i%7)*ms, &Watch{Class: c})
		r.Late(now, &Watch{Class: c})
	}
	for range 1000 {
		request()
	}
	if n := testing.AllocsPerRun(1000, request); n > 0 {
		t.Errorf("%v allocations per request", n)
	}
}

// TestClassAlwaysHedged: a class whose requests take longer than its first delay, so that the hedges
// of many win, gets a delay that few of them need, and max_delay doesn't bound it.
func TestClassAlwaysHedged(t *testing.T) {
	r := unequal(t, 1000, 0, map[int]time.Duration{100: ms})
	rnd := rand.New(rand.NewPCG(3, 4))
	draw := func() time.Duration { return time.Duration(math.Exp(rnd.NormFloat64()*0.3) * float64(100*ms)) }
	now, hedges, sent := time.Duration(0), 0, 0
	for ; now < 40*time.Second; now += 20 * ms {
		learn(r, 10, now, map[int]time.Duration{100: ms})
		w := Watch{Class: r.ClassOf(now, nil, 10_000)}
		delay, primary, hedge := r.DelayOf(now, w.Class), draw(), draw()
		if now > 30*time.Second {
			sent++
			if primary > delay {
				hedges++
			}
		}
		if primary > delay && delay+hedge < primary {
			r.Late(now, &w)
			continue
		}
		r.Answered(now, primary, &w)
	}
	if share := float64(hedges) / float64(sent); share > 0.06 {
		t.Errorf("%.0f%% of the long requests are hedged, after %v", 100*share, r.delayOfSize(now, 10_000))
	}
}

// TestClassInheritQuantile: the last finite quantile of a class is not that of another setting.
func TestClassInheritQuantile(t *testing.T) {
	old := unequal(t, 1000, 0, map[int]time.Duration{100: ms, 10_000: 10 * ms})
	old.delayOfSize(cacheAge, 100)
	p := auto()
	p.Quantile = .5
	r := NewRoute(*p, 1)
	r.Inherit(old)
	for range 3000 { // more than half are censored
		r.Late(2*cacheAge, &Watch{Class: r.ClassOf(0, nil, 100)})
	}
	r.classes.update(2*cacheAge, p, r.Estimator.estimate(2*cacheAge, p.Quantile))
	if c := r.classes.list[r.ClassOf(0, nil, 100)-1]; c.typical == 0 || c.tail != 0 {
		t.Errorf("of lower quartile %v the tail is %v, want one that is unknown", c.typical, c.tail)
	}
}
