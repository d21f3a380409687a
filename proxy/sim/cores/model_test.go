package cores

import (
	"math"
	"testing"
	"time"
)

// measured are medians of the benchmarks, on two cores of an AMD EPYC (Zen 4). Request and Batch are those of
// scripts/bench.sh: half of what two hops take at 64 connections, and a write and a read.
var measured = Costs{
	Request: 11400 * time.Nanosecond, Batch: 7450 * time.Nanosecond, Post: 3700 * time.Nanosecond,
	Move: 6500 * time.Nanosecond, Change: 40 * time.Nanosecond, Turn: 200 * time.Millisecond,
}

// far is what a change is assumed to take between dies or sockets. Nothing was measured on such a machine.
const far = 150 * time.Nanosecond

// Changes of the counters of a service by a request: two of the requests in flight, and the time of the last response. With
// max_concurrency two of the slots come, and with "auto" one of the sums.
const (
	plain = 3
	slots = 6
)

func near(a, b, part float64) bool { return math.Abs(a-b) <= part*math.Abs(b) }

func TestOneLoop(t *testing.T) {
	c := Costs{Request: 9 * time.Microsecond, Batch: 8 * time.Microsecond, Post: 3 * time.Microsecond, Change: 100 * time.Nanosecond, Turn: time.Second}
	w := Work{Ready: 4, Endpoints: 2, Changes: 10}
	got := c.At(1, w)
	want := Figures{Rate: 1e6 / 14, CPU: 14 * time.Microsecond, Links: 2, Turn: time.Second}
	if !near(got.Rate, want.Rate, 1e-9) || got.CPU != want.CPU || got.Waiting != 0 || got.Links != want.Links || got.Turn != want.Turn {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := c.Knee(w); got != 14 {
		t.Errorf("the knee is at %v loops, want 14", got)
	}
	if got, want := c.SharedLinks(2, w), 17*time.Microsecond; got != want { // a quarter of a write, and two posts
		t.Errorf("with shared links %v, want %v", got, want)
	}
}

// TestTwoLoops: of two loops that are as long at the line as elsewhere, one waits half of the time. By hand: at = 1 + 1/2.
func TestTwoLoops(t *testing.T) {
	c := Costs{Request: time.Microsecond, Change: time.Microsecond, Turn: time.Second}
	got := c.At(2, Work{Ready: 1, Endpoints: 3, Changes: 1})
	if !near(got.Rate, 2e6/2.5, 1e-9) || !near(got.Waiting, 0.2, 1e-9) || got.CPU != 2500*time.Nanosecond || got.Links != 6 || got.Turn != 2*time.Second {
		t.Errorf("%+v", got)
	}
}

func TestBounds(t *testing.T) {
	w := Work{Ready: 64, Endpoints: 1, Changes: plain}
	line := 1 / measured.counters(w).Seconds()
	before := 0.0
	for loops := 1; loops <= 1024; loops *= 2 {
		rate := measured.At(loops, w).Rate
		if rate < before*(1-1e-9) || rate > line*(1+1e-9) || rate > float64(loops)*measured.At(1, w).Rate*(1+1e-9) {
			t.Errorf("%d loops: %.0f/s, after %.0f; the line allows %.0f", loops, rate, before, line)
		}
		before = rate
	}
	if !near(before, line, 0.01) {
		t.Errorf("1,024 loops: %.0f/s, but the line allows %.0f", before, line)
	}
	w.Changes = 0
	if got, want := measured.At(64, w).Rate, 64*measured.At(1, w).Rate; !near(got, want, 1e-9) {
		t.Errorf("without counters 64 loops pass %.0f/s, want %.0f", got, want)
	}
}

// TestKnee: up to half of the knee a loop brings nearly what the first one did; at twice the knee hardly more come.
func TestKnee(t *testing.T) {
	for _, change := range []time.Duration{measured.Change, far} {
		c, w := measured, Work{Ready: 64, Endpoints: 1, Changes: slots}
		c.Change = change
		knee := int(c.Knee(w))
		one, half, twice := c.At(1, w).Rate, c.At(knee/2, w).Rate, c.At(2*knee, w).Rate
		if half < 0.85*one*float64(knee/2) || twice > 1.1*c.At(knee*3/2, w).Rate {
			t.Errorf("knee %d: %.0f/s with one loop, %.0f with half as many, %.0f with twice as many", knee, one, half, twice)
		}
	}
}

// TestSharedLinks: it does not pay to give messages to a loop that has all links, as the posts take as long as a write.
func TestSharedLinks(t *testing.T) {
	for _, loops := range []int{2, 16, 64} {
		for _, endpoints := range []int{1, 10, 100, 1000} {
			w := Work{Ready: 64, Endpoints: endpoints, Changes: plain}
			if own, shared := measured.request(w), measured.SharedLinks(loops, w); float64(shared) < 0.99*float64(own) {
				t.Errorf("%d loops, %d endpoints: %v with own links, %v with shared ones", loops, endpoints, own, shared)
			}
		}
	}
}

// TestCurve prints the tables of docs/performance.md: go test ./proxy/sim/cores -run TestCurve -v
func TestCurve(t *testing.T) {
	for _, change := range []time.Duration{measured.Change, far} {
		for _, w := range []Work{
			{Ready: 64, Endpoints: 1, Changes: plain}, {Ready: 64, Endpoints: 1, Changes: slots},
			{Ready: 64, Endpoints: 100, Changes: plain},
		} {
			c := measured
			c.Change = change
			t.Logf("%+v, a change takes %v: knee at %.0f loops", w, change, c.Knee(w))
			for _, loops := range []int{1, 2, 4, 16, 64} {
				f := c.At(loops, w)
				t.Logf("%3d loops: %5.2f million/s, %5.2f of the ideal, %5.1f µs, waiting %2.0f%%, %5d links, a turn each %v; shared links %v",
					loops, f.Rate/1e6, f.Rate/float64(loops)/c.At(1, w).Rate, float64(f.CPU)/1e3, 100*f.Waiting, f.Links, f.Turn, c.SharedLinks(loops, w))
			}
		}
	}
}
