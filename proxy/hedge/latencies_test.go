package hedge

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
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
			r.Latencies.Observe(at, latency, r.Latencies.ClassOf(at, nil, size))
		}
	}
}

func (r *Route) delayOfSize(now time.Duration, size int) time.Duration {
	return r.Delays.Of(now, r.Latencies.ClassOf(now, nil, size))
}

func within(got, want time.Duration, share float64) bool {
	return math.Abs(float64(got-want)) <= share*float64(want)
}

// TestClassDelays: short and long requests of one route have delays of their own.
func TestClassDelays(t *testing.T) {
	r := unequal(t, 1000, 0, map[int]time.Duration{100: ms, 10_000: 10 * ms})
	for range 20 { // of a size that is new
		r.Latencies.ClassOf(0, nil, 1_000_000)
	}
	now := cacheAge
	if got := r.delayOfSize(now, 100); !within(got, 2*ms, .13) {
		t.Errorf("the delay of short requests is %v, want 2 ms", got)
	}
	if got := r.delayOfSize(now, 10_000); !within(got, 20*ms, .13) {
		t.Errorf("the delay of long requests is %v, want 20 ms", got)
	}
	if got := r.delayOfSize(now, 1_000_000); got != r.Delays.Of(now, 0) {
		t.Errorf("the delay of requests of which nothing is known is %v, want that of the route, %v", got, r.Delays.Of(now, 0))
	}
}

// TestClassMerge: classes that are alike have the delay of the route, and react as fast. Those that
// are not have that of their group.
func TestClassMerge(t *testing.T) {
	r := unequal(t, 1000, 0, map[int]time.Duration{100: 4 * ms, 1000: 5 * ms})
	for _, now := range []time.Duration{time.Second, 3 * time.Second} {
		for _, size := range []int{100, 1000} {
			if got := r.delayOfSize(now, size); got != r.Delays.Of(now, 0) {
				t.Errorf("at %v the delay of alike classes is %v, want that of the route, %v", now, got, r.Delays.Of(now, 0))
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
	if route := r.Delays.Of(cacheAge, 0); route < 10*ms {
		t.Fatalf("the delay of the route is %v, not that of long requests", route)
	}
	if got := r.delayOfSize(cacheAge, 100); !within(got, 2*ms, .13) {
		t.Errorf("the delay of short requests is %v, want 2 ms", got)
	}
}

// TestClassCensor: attempts that were given up keep a class's delay up, as they do a route's.
func TestClassCensor(t *testing.T) {
	r := unequal(t, 1000, 0, map[int]time.Duration{100: ms, 10_000: 10 * ms})
	before := r.delayOfSize(cacheAge, 100)
	for range 100 {
		r.Latencies.Censor(cacheAge, r.Latencies.ClassOf(cacheAge, nil, 100))
	}
	now := 2 * cacheAge
	if got := r.delayOfSize(now, 100); got != before {
		t.Errorf("the delay is %v after late requests, want the last one known, %v", got, before)
	}
}

// TestOneClass: if classes are off, a request has none.
func TestOneClass(t *testing.T) {
	p := auto()
	p.OneClass = true
	r := NewRoute(*p, 1)
	for i := range 10_000 {
		if c := r.Latencies.ClassOf(0, []byte("a"), i); c != 0 {
			t.Fatalf("request %d has class %d", i, c)
		}
	}
}

// TestClassDeadline: the gate deadline asks for the median of the class.
func TestClassDeadline(t *testing.T) {
	r := unequal(t, 1000, 0, map[int]time.Duration{100: ms, 10_000: 10 * ms})
	s := NewService(1)
	for size, want := range map[int]Gate{100: Open, 10_000: Deadline} {
		q := Question{Class: r.Latencies.ClassOf(0, nil, size), Idempotent: true, Paid: true, Endpoints: 3, Active: 3, Untried: 1, Left: 5 * ms}
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
	if got := r.delayOfSize(cacheAge, 100); got != old.Delays.Of(cacheAge, 0) {
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
		c := r.Latencies.ClassOf(now, names[i%len(names)], i%2*10_000)
		r.Delays.Of(now, c)
		r.Latencies.Observe(now, time.Duration(i%7)*ms, c)
		r.Latencies.Censor(now, c)
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
		c := r.Latencies.ClassOf(now, nil, 10_000)
		delay, primary, hedge := r.Delays.Of(now, c), draw(), draw()
		if now > 30*time.Second {
			sent++
			if primary > delay {
				hedges++
			}
		}
		if primary > delay && delay+hedge < primary {
			r.Latencies.Censor(now, c)
			continue
		}
		r.Latencies.Observe(now, primary, c)
	}
	if share := float64(hedges) / float64(sent); share > 0.06 {
		t.Errorf("%.0f%% of the long requests are hedged, after %v", 100*share, r.delayOfSize(now, 10_000))
	}
}
