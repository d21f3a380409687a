package adaptive

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// seeds runs f on simulations that differ in nothing but chance.
func seeds(t *testing.T, f func(t *testing.T, s *queueSim)) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { f(t, newSim(seed)) })
	}
}

// holds runs on for ten seconds at twice the capacity and checks that nothing of
// that is lost to a limit too low, and no time to one too high.
func (s *queueSim) holds(t *testing.T, mean time.Duration) {
	t.Helper()
	var limits []int
	done, latency := 0, time.Duration(0)
	for range 100 {
		s.run(100*ms, 2, mean)
		limits = append(limits, s.limit.Value())
		done, latency = done+s.done, latency+s.latency
	}
	s.done, s.latency = done, latency
	if got := s.goodput(10*time.Second, mean); got < 0.9 {
		t.Errorf("%.0f%% of the capacity was used, want 90%%", 100*got)
	}
	if got := s.meanLatency(); got > 2*mean {
		t.Errorf("the application took %v, want at most twice its service time, %v", got, mean)
	}
	slices.Sort(limits)
	if median := limits[50]; median < s.workers || median > 2*s.workers {
		t.Errorf("the limit was mostly %d with %d workers; all of them: %v", median, s.workers, limits)
	}
}

// At any load, with any spread of service times, what can be served is served.
func TestLimitAtLoads(t *testing.T) {
	for _, cv := range []float64{0.01, 1} {
		for _, load := range []float64{0.5, 1, 2} {
			t.Run(fmt.Sprintf("variation %v, load %v", cv, load), func(t *testing.T) {
				seeds(t, func(t *testing.T, s *queueSim) {
					s.lognormal(10*ms, cv)
					s.run(3*time.Second, load, 10*ms)
					s.run(10*time.Second, load, 10*ms)
					if got, want := s.goodput(10*time.Second, 10*ms), 0.9*min(load, 1); got < want {
						t.Errorf("%.0f%% of the capacity was used, want %.0f%%", 100*got, 100*want)
					}
					if got := s.limit.Value(); got > 5*s.workers {
						t.Errorf("the limit is %d with %d workers", got, s.workers)
					}
				})
			})
		}
	}
}

// The limit is found from nothing, for pools of every size.
func TestLimitFindsThePool(t *testing.T) {
	for _, workers := range []int{4, 8, 100} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			seeds(t, func(t *testing.T, s *queueSim) {
				s.workers = workers
				s.run(5*time.Second, 2, 10*ms)
				s.holds(t, 10*ms)
			})
		})
	}
}

// The limit follows the pool down and up.
func TestLimitFollowsThePool(t *testing.T) {
	seeds(t, func(t *testing.T, s *queueSim) {
		for _, workers := range []int{8, 4, 16} {
			s.workers = workers
			s.run(4*time.Second, 2, 10*ms)
			s.holds(t, 10*ms)
		}
	})
}

// A limit that was right once and is now many times too high comes down in the
// end, although a probe at half of it finds a queue too.
func TestLimitComesDownFarTooHigh(t *testing.T) {
	seeds(t, func(t *testing.T, s *queueSim) {
		s.workers = 100
		s.run(5*time.Second, 2, 10*ms)
		s.workers = 4
		s.run(20*time.Second, 2, 10*ms)
		s.holds(t, 10*ms)
	})
}

// An application that has become slower is not starved for the latency that it
// once had, and one that has become faster is not given a queue.
func TestLimitForgetsTheOldLatency(t *testing.T) {
	seeds(t, func(t *testing.T, s *queueSim) {
		for _, mean := range []time.Duration{10 * ms, 30 * ms, 5 * ms} {
			s.service = func() time.Duration { return time.Duration(s.rnd.ExpFloat64() * float64(mean)) }
			s.run(5*time.Second, 2, mean)
			s.holds(t, mean)
		}
	})
}

// A freeze costs its own time and little more: the limit stays near what it was,
// and a second later nothing is left of it.
func TestLimitOutlivesFreezes(t *testing.T) {
	for _, mean := range []time.Duration{2 * ms, 10 * ms} {
		t.Run(mean.String(), func(t *testing.T) {
			seeds(t, func(t *testing.T, s *queueSim) {
				s.lognormal(mean, 0.5)
				s.run(5*time.Second, 2, mean)
				done := 0
				for range 20 {
					s.freeze(50 * ms)
					s.run(100*ms, 2, mean)
					done += s.done
					s.run(900*ms, 2, mean)
					done += s.done
					if s.limit.phase == steady && s.limit.Value() < s.workers*3/4 {
						t.Errorf("a second after a freeze the limit is %d with %d workers", s.limit.Value(), s.workers)
					}
				}
				s.done = done
				if got := s.goodput(20*time.Second, mean); got < 0.9*0.95 {
					t.Errorf("%.0f%% of the capacity was used, with 5%% lost to freezes", 100*got)
				}
			})
		})
	}
}

// full is a window full of answers.
func full(latency time.Duration, reached bool) Window {
	return Window{Elapsed: 100 * ms, Answers: 100, Latency: 100 * latency, Reached: reached}
}

// A limit that nobody reaches stays, however good the latency is.
func TestLimitGrowsInUseOnly(t *testing.T) {
	l := New()
	for range 10 {
		l.Update(full(ms, true))
	}
	before := l.Value()
	for range 1000 {
		l.Update(full(ms/2, false))
	}
	if got := l.Value(); got != before {
		t.Errorf("the limit went from %d to %d without load", before, got)
	}
}

// Whatever it is told, the limit stays within its bounds.
func TestLimitIsBounded(t *testing.T) {
	l := New()
	for range 1000 {
		l.Update(full(ms, true))
		if l.Value() > Most {
			t.Fatalf("the limit is %d", l.Value())
		}
	}
	if l.Value() < Most/2 {
		t.Errorf("the limit is %d after a long time without any queue", l.Value())
	}
	latency := ms
	for range 1000 {
		latency = min(latency*2, time.Hour)
		l.Update(full(latency, true))
		if l.Value() < Least/2 {
			t.Fatalf("the limit is %d", l.Value())
		}
	}
}

// Answers that took no time that the clock could tell leave the limit a number.
func TestLimitOfNoLatency(t *testing.T) {
	l := New()
	w := Window{Elapsed: steadyLength, Answers: measureFactor * leastAnswers, Reached: true}
	for i := range 1000 {
		w.Latency = 0
		if i < 5 { // which ends the start
			w.Latency = time.Duration(i) * time.Second
		}
		l.Update(w)
		if n := l.Value(); n < 1 || n > Most {
			t.Fatalf("after %d windows the limit is %d", i+1, n)
		}
	}
}

// A window with few answers goes on; one that would go on for ever is dropped,
// and the limit is not left halved by a probe that nobody is there for.
func TestWindowWithoutTraffic(t *testing.T) {
	l := New()
	l.Update(full(ms, true))
	l.Update(full(2*ms, true))
	for i := 0; l.phase != measuring; i++ {
		if i == 100 {
			t.Fatal("no probe")
		}
		l.Update(full(ms, true))
	}
	halved := l.Value()
	few := Window{Elapsed: time.Second, Answers: leastAnswers - 1, Latency: time.Second}
	if l.Update(few) || l.Value() != halved {
		t.Error("a window with few answers was taken")
	}
	few.Elapsed = longest
	if !l.Update(few) || l.Value() < 2*halved-1 || l.phase != steady {
		t.Errorf("the limit is %d after a probe that came to nothing, and was %d in it", l.Value(), halved)
	}
}

// Slow applications get longer windows, up to a bound.
func TestWindowLength(t *testing.T) {
	for _, c := range []struct{ latency, want time.Duration }{
		{ms, steadyLength}, {60 * ms, 120 * ms}, {time.Minute, longest},
	} {
		l := New()
		l.Update(full(c.latency, false))
		if got := l.Length(); got != c.want {
			t.Errorf("latency %v: %v, want %v", c.latency, got, c.want)
		}
	}
}

func TestUpdateAllocatesNothing(t *testing.T) {
	l := New()
	if n := testing.AllocsPerRun(1000, func() { l.Update(full(ms, true)) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Of one worker the limit is further off than of more (docs/decisions/0007): what
// can be served is served, with a queue of a few requests.
func TestLimitOfSmallPools(t *testing.T) {
	for workers, want := range map[int]int{1: 3, 2: 4} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			var limits []int
			seeds(t, func(t *testing.T, s *queueSim) {
				s.workers = workers
				s.run(5*time.Second, 2, 10*ms)
				done := 0
				for range 300 {
					s.run(100*ms, 2, 10*ms)
					limits = append(limits, s.limit.Value())
					done += s.done
				}
				s.done = done
				if got := s.goodput(30*time.Second, 10*ms); got < 0.9 {
					t.Errorf("%.0f%% of the capacity was used, want 90%%", 100*got)
				}
			})
			slices.Sort(limits)
			median, p95, most := limits[len(limits)/2], limits[len(limits)*95/100], limits[len(limits)-1]
			t.Logf("the limit: median %d, p95 %d, at most %d", median, p95, most)
			if median > want || p95 > 8 {
				t.Errorf("the limit is %d in the median, and %d in 95%% of the time", median, p95)
			}
		})
	}
}
