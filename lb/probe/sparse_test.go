package probe

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestSparse: which traffic is sparse. Requests come at random moments, and are observed each 100 ms at most.
func TestSparse(t *testing.T) {
	typical := Traffic{Endpoints: 10, Others: 1.5, Known: true, Latency: 50 * ms}
	with := func(change func(*Traffic)) Traffic {
		t := typical
		change(&t)
		return t
	}
	for _, c := range []struct {
		name    string
		rate    float64
		traffic Traffic
		want    bool
	}{
		{"3 a second", 3, typical, true},
		{"one in 5 s", 0.2, typical, true},
		{"half of rateMost", rateMost / 2, typical, true},
		{"twice rateMost", 2 * rateMost, typical, false},
		{"1,000 a second", 1000, typical, false},
		{"one endpoint", 3, with(func(t *Traffic) { t.Endpoints = 1 }), false},
		{"no other callers", 3, with(func(t *Traffic) { t.Others = 0 }), false},
		{"half of othersLeast", 3, with(func(t *Traffic) { t.Others = othersLeast / 2 }), false},
		{"twice othersLeast", 3, with(func(t *Traffic) { t.Others = 2 * othersLeast }), true},
		{"no reports", 3, with(func(t *Traffic) { t.Known = false }), false},
		{"half of latencyLeast", 3, with(func(t *Traffic) { t.Latency = latencyLeast / 2 }), false},
		{"twice latencyLeast", 3, with(func(t *Traffic) { t.Latency = 2 * latencyLeast }), true},
		{"reports that say something for longer than until the next", 20, with(func(t *Traffic) { t.Latency = 4 * time.Second }), false},
		{"reports that say nothing any more when the next comes", 20, with(func(t *Traffic) { t.Latency = 400 * ms }), true},
	} {
		var s Sparse
		rnd := rand.New(rand.NewPCG(1, 2))
		on, off := 0, 0
		seen := -time.Second
		for now := time.Duration(0); now < 30*time.Second+time.Duration(40/c.rate)*time.Second; {
			now += time.Duration(rnd.ExpFloat64() / c.rate * float64(time.Second))
			c.traffic.Requests++
			if now-seen < 100*ms {
				continue
			}
			seen = now
			s.Observe(now, &c.traffic)
			switch {
			case now < 10*time.Second:
			case s.On():
				on++
			default:
				off++
			}
		}
		if got := on > 9*off; got != c.want || !got && off <= 9*on {
			t.Errorf("%s: sparse %d times, and %d times not", c.name, on, off)
		}
	}
}

// TestSparseNotAtFirst: the first requests after a start don't know their rate.
func TestSparseNotAtFirst(t *testing.T) {
	var s Sparse
	s.Observe(time.Hour, &Traffic{Requests: 1, Endpoints: 10, Others: 9, Known: true, Latency: time.Second / 10})
	if s.On() {
		t.Error("sparse after one request")
	}
}

// TestSparseBounds: each bound of sparse traffic.
func TestSparseBounds(t *testing.T) {
	for _, c := range []struct {
		requests, endpoints int // requests in the last second
		others              float64
		latency             time.Duration
		want                bool
	}{
		{1, 2, 1, 10 * ms, true}, {1, 1, 1, 10 * ms, false},
		{int(rateMost) - 1, 10, 1, 10 * ms, true}, {int(rateMost), 10, 1, 10 * ms, false},
		{1, 2, othersLeast, 10 * ms, true}, {1, 2, othersLeast - .01, 10 * ms, false},
		{1, 2, 1, latencyLeast, true}, {1, 2, 1, latencyLeast - 1, false},
		{8, 3, 1, 500 * ms, true}, {8, 2, 1, 500 * ms, false}, // the next report comes just as the last one is old
	} {
		s := Sparse{began: true, at: time.Hour, others: c.others}
		s.Observe(time.Hour+time.Second, &Traffic{Requests: uint64(c.requests), Endpoints: c.endpoints, Latency: c.latency})
		if s.On() != c.want || s.rate != float64(c.requests) {
			t.Errorf("%+v: sparse %t, at %v a second", c, s.On(), s.rate)
		}
		before := s
		if s.Observe(time.Hour+time.Second, &Traffic{Requests: 1000}); s != before {
			t.Errorf("%+v: a second look at the same time sees %+v", c, s)
		}
	}
}

// TestPatience: waits in vain become rarer, up to one in skipMost. After a wait with answers each request waits again.
func TestPatience(t *testing.T) {
	var p Patience
	waits := 0
	for range 1000 {
		if p.Waits() {
			waits++
			p.InVain()
		}
	}
	if least := 1000 / (skipMost + 1); waits < least || waits > least+8 {
		t.Errorf("%d of 1000 requests waited", waits)
	}
	for !p.Waits() {
	}
	p.Answered()
	for range 2 {
		if !p.Waits() {
			t.Error("a request skipped its wait after one with answers")
		}
	}
	p.InVain()
	if p.Waits() || !p.Waits() {
		t.Error("not one request skipped its wait, after one in vain that followed one with answers")
	}
}

// TestWaitOf: the wait is a quarter of the latency, within its bounds.
func TestWaitOf(t *testing.T) {
	for latency, want := range map[time.Duration]time.Duration{0: ms, 2 * ms: ms, 8 * ms: 2 * ms, time.Second: 5 * ms} {
		if got := WaitOf(latency); got != want {
			t.Errorf("at %v: %v, want %v", latency, got, want)
		}
	}
}

// TestRate: the rate follows the requests within a second.
func TestRate(t *testing.T) {
	for took, want := range map[time.Duration]float64{time.Second / 4: 10 + (400-10)/4., time.Second: 100, 2 * time.Second: 50, 10 * time.Second: 10} {
		s := Sparse{began: true, at: time.Hour, requests: 7, rate: 10}
		if s.Observe(time.Hour+took, &Traffic{Requests: 107}); s.rate != want {
			t.Errorf("100 requests in %v after 10 a second: %v, want %v", took, s.rate, want)
		}
	}
}

// TestSkips: each wait in vain doubles the requests that do not wait.
func TestSkips(t *testing.T) {
	var p Patience
	for _, want := range []int{1, 2, 4, 8, 16, 32, 64, 64, 64} {
		if !p.Waits() {
			t.Fatal("does not wait")
		}
		p.InVain()
		for n := range want {
			if p.Waits() {
				t.Errorf("waits after %d requests, want %d", n, want)
			}
		}
	}
}
