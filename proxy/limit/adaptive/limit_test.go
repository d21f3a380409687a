package adaptive

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// seeds runs f on simulations that differ only in their seed.
func seeds(t *testing.T, f func(t *testing.T, s *queueSim)) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { f(t, newSim(seed)) })
	}
}

// checkOverload continues for ten seconds at twice the capacity. It checks that the
// limit is high enough to use the capacity, and low enough for a short queue.
func (s *queueSim) checkOverload(t *testing.T, mean time.Duration) {
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
		t.Errorf("the median limit was %d with %d workers; limits: %v", median, s.workers, limits)
	}
}

// The whole capacity can be used, at any load and with any variation of service times.
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

// The limit finds the capacity from its start, for pools of different sizes.
func TestLimitFindsThePool(t *testing.T) {
	for _, workers := range []int{4, 8, 100} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			seeds(t, func(t *testing.T, s *queueSim) {
				s.workers = workers
				s.run(5*time.Second, 2, 10*ms)
				s.checkOverload(t, 10*ms)
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
			s.checkOverload(t, 10*ms)
		}
	})
}

// A limit that has become many times too high falls, although a probe at half of it
// finds a queue too.
func TestLimitAfterLossOfCapacity(t *testing.T) {
	seeds(t, func(t *testing.T, s *queueSim) {
		s.workers = 100
		s.run(5*time.Second, 2, 10*ms)
		s.workers = 4
		s.run(20*time.Second, 2, 10*ms)
		s.checkOverload(t, 10*ms)
	})
}

// If an application becomes slower, the limit does not fall to keep its former
// latency. If it becomes faster, no queue grows.
func TestLimitAfterChangeOfLatency(t *testing.T) {
	seeds(t, func(t *testing.T, s *queueSim) {
		for _, mean := range []time.Duration{10 * ms, 30 * ms, 5 * ms} {
			s.service = func() time.Duration { return time.Duration(s.rnd.ExpFloat64() * float64(mean)) }
			s.run(5*time.Second, 2, mean)
			s.checkOverload(t, mean)
		}
	})
}

// A freeze costs little more than its own duration. A second later the limit is back.
func TestLimitAfterFreezes(t *testing.T) {
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

// full returns a window with enough responses.
func full(latency time.Duration, reached bool) Window {
	return Window{Elapsed: 100 * ms, Answers: 100, Latency: 100 * latency, Reached: reached}
}

// A limit that is not reached stays, however low the latency is.
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

// The limit stays within its bounds for any measurements.
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

// With latencies of 0 the limit stays a number.
func TestLimitWithZeroLatency(t *testing.T) {
	l := New()
	w := Window{Elapsed: minLength, Answers: measureFactor * minResponses, Reached: true}
	for i := range 1000 {
		w.Latency = 0
		if i < 5 { // ends the slow start
			w.Latency = time.Duration(i) * time.Second
		}
		l.Update(w)
		if n := l.Value(); n < 1 || n > Most {
			t.Fatalf("after %d windows the limit is %d", i+1, n)
		}
	}
}

// A window with few responses continues, up to maxLength. Then it is dropped, and a
// probe does not leave the limit halved.
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
	few := Window{Elapsed: time.Second, Answers: minResponses - 1, Latency: time.Second}
	if l.Update(few) || l.Value() != halved {
		t.Error("a window with few responses was accepted")
	}
	few.Elapsed = maxLength
	if !l.Update(few) || l.Value() < 2*halved-1 || l.phase != steady {
		t.Errorf("the limit is %d after an abandoned probe, and was %d in it", l.Value(), halved)
	}
}

// Slow applications have longer windows, up to maxLength.
func TestWindowLength(t *testing.T) {
	for _, c := range []struct{ latency, want time.Duration }{
		{ms, minLength}, {60 * ms, 120 * ms}, {time.Minute, maxLength},
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

// With one worker the limit is further from the capacity than with more
// (docs/decisions/0007). The capacity is used, with a queue of a few requests.
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
