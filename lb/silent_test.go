package lb

import (
	"strconv"
	"testing"
	"time"
)

func TestSilence(t *testing.T) {
	for _, c := range []struct {
		name           string
		do             func(e *Endpoint)
		active, silent int
	}{
		{"never used", func(e *Endpoint) {}, 0, 0},
		{"pending for long", func(e *Endpoint) { e.Start(5 * ms) }, 1, 1},
		{"pending for a moment", func(e *Endpoint) { e.Start(6 * ms) }, 1, 0},
		{"pending for long, but another was answered", func(e *Endpoint) {
			e.Start(0)
			e.Start(0)
			e.Finish(7*ms, 7*ms)
		}, 1, 0},
		{"idle, answered a moment ago", func(e *Endpoint) {
			e.Start(0)
			e.Finish(7*ms, 7*ms)
		}, 1, 0},
		{"idle, answered long ago", func(e *Endpoint) {
			e.Start(0)
			e.Finish(5*ms, 5*ms)
		}, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, e := one(t)
			c.do(e)
			if active, silent := new(SilentCount).Count(s, 10*ms, 5*ms); active != c.active || silent != c.silent {
				t.Errorf("active %d, silent %d; want %d and %d", active, silent, c.active, c.silent)
			}
		})
	}
}

// TestSilenceOfMany checks that a few endpoints are visited each time, and many only once
// in a while.
func TestSilenceOfMany(t *testing.T) {
	const after = 8 * ms
	for _, n := range []int{fewSilent, fewSilent + 1} {
		s := &Set{}
		added, _ := s.Update(numbered(n, even))
		for _, e := range added {
			e.Start(0)
		}
		var last SilentCount
		wants := func(now time.Duration, want int) {
			t.Helper()
			if active, silent := last.Count(s, now, after); active != n || silent != want {
				t.Errorf("%d endpoints at %v: active %d, silent %d; want %d and %d", n, now, active, silent, n, want)
			}
		}
		wants(20*ms, n)
		for _, e := range added {
			e.Finish(20*ms, 20*ms)
		}
		if n > fewSilent {
			wants(21*ms-1, n)
		} else {
			wants(21*ms-1, 0)
		}
		wants(21*ms, 0)
	}
}

// BenchmarkSilence measures one late request of a million per second.
func BenchmarkSilence(b *testing.B) {
	for _, n := range []int{3, 10, fewSilent, 1000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			s := &Set{}
			added, _ := s.Update(numbered(n, even))
			for i, e := range added {
				if i%2 == 0 {
					e.Start(0)
				}
			}
			var last SilentCount
			var now time.Duration
			for b.Loop() {
				now += time.Microsecond
				last.Count(s, now, 5*ms)
			}
		})
	}
}

// TestSilentSince: the silence begins when the first endpoint goes silent. All are silent from when the last one is.
func TestSilentSince(t *testing.T) {
	s := &Set{}
	added, _ := s.Update(numbered(4, even))
	for i, at := range []time.Duration{30 * ms, 20 * ms, 25 * ms, 98 * ms} {
		added[i].Start(at)
	}
	var last SilentCount
	if _, silent := last.Count(s, 100*ms, 5*ms); silent != 3 || last.Since != 20*ms || last.All != 30*ms {
		t.Errorf("%d are silent since %v, and all since %v, want 3 since 20ms and 30ms", silent, last.Since, last.All)
	}
}
