package hedge

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/choice"
)

// TestCounts: counts add up, each of them.
func TestCounts(t *testing.T) {
	of := func(times uint64) (c Counts) {
		c = Counts{Primaries: times, Hedges: 2 * times, HedgesMissed: 3 * times, HedgesWon: 4 * times}
		for i := range c.Gates {
			c.Gates[i] = times * uint64(5+i)
		}
		return c
	}
	got, more := of(1), of(10)
	if got.Add(&more); got != of(11) {
		t.Errorf("%+v, want %+v", got, of(11))
	}
}

// TestClasses: the report of the classes of a route.
func TestClasses(t *testing.T) {
	for _, c := range []struct {
		long   time.Duration // latency of long requests; that of short ones is 1 ms
		merged bool
	}{{10 * ms, false}, {ms, true}} {
		r := unequal(t, 1000, 0, map[int]time.Duration{100: ms, 10_000: c.long})
		all := r.Classes(cacheAge)
		if len(all) != 2 {
			t.Fatalf("%+v, want two classes", all)
		}
		seen := map[string]bool{}
		for _, got := range all {
			seen[got.Name] = true
			median, size := ms, 100
			if got.Name == "8192-16383 bytes" {
				median, size = c.long, 10_000
			}
			if got.Samples < 900 || got.Samples > 1000 || !within(got.Median, median, .04) || got.Merged != c.merged || got.Delay != r.delayOfSize(cacheAge, size) {
				t.Errorf("long requests take %v: %+v", c.long, got)
			}
		}
		if !seen["64-127 bytes"] || !seen["8192-16383 bytes"] {
			t.Errorf("%+v: other names", all)
		}
	}
}

// TestSilentAfter: an endpoint may be silent for two medians, or for the delay without the median of the late request. The delay
// is the shorter one of the best delay and the quantile.
func TestSilentAfter(t *testing.T) {
	for _, c := range []struct {
		name string
		slow time.Duration // of a tenth of the requests; the others take 4 ms
		best time.Duration // 0 means that it is not known
		want time.Duration
	}{
		{"nothing is slow", 4 * ms, 0, 8 * ms},
		{"some are slow", 30 * ms, 0, 26 * ms},
		{"a shorter best delay", 30 * ms, 20 * ms, 16 * ms},
		{"a much shorter best delay", 30 * ms, 10 * ms, 8 * ms},
		{"a longer best delay", 30 * ms, 45 * ms, 26 * ms},
	} {
		r := NewRoute(*auto(), 1)
		observe(&r.Latencies.Primaries, 900, 0, 4*ms)
		observe(&r.Latencies.Primaries, 100, 0, c.slow)
		if c.best > 0 {
			r.Delays.best.Choice = choice.Choice{Delay: c.best, Share: 1}
		}
		if got := r.Delays.SilentAfter(0); !near(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestAgain: a request asks again after the delay, and not too often.
func TestAgain(t *testing.T) {
	for delay, want := range map[time.Duration]time.Duration{1: minAskInterval, minAskInterval: minAskInterval, 20 * ms: 20 * ms} {
		if got := NewRoute(Policy{Mode: On, Delay: delay}, 1).Delays.Again(0, 0); got != want {
			t.Errorf("a delay of %v: again after %v, want %v", delay, got, want)
		}
	}
}
