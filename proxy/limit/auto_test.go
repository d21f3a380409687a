package limit

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestSampleSums: a sum says how many samples it has, and how long they took together. A sample takes at most longestSample.
func TestSampleSums(t *testing.T) {
	sum, want := uint64(0), time.Duration(0)
	for i, latency := range []time.Duration{1500 * time.Microsecond, 2 * longestSample, 0, time.Second} {
		sum += Sample(latency)
		want += min(latency, longestSample)
		if n, took := splitSamples(sum); n != i+1 || took != want {
			t.Errorf("%d samples of %s in all, want %d of %s", n, took, i+1, want)
		}
	}
}

// TestAutoWindows: a window closes once it has lasted long enough and has enough responses. The limit rises only if a
// request found all slots taken, or waits. At its start it doubles with each window, until the latency rises.
func TestAutoWindows(t *testing.T) {
	const length = 100 * time.Millisecond // of a window with short latencies
	var slots Slots
	slots.Auto = NewAuto(&slots.Limit)
	begin := slots.Limit.Load()
	now := time.Hour
	for i, step := range []struct {
		after     time.Duration // since the step before
		responses int
		latency   time.Duration
		taken     bool // a request finds no slot
		queued    bool
		closed    bool
		limit     int32
	}{
		{0, 21, time.Millisecond, false, false, true, begin},
		{0, 20, time.Millisecond, true, false, false, begin}, // too early
		{length - 1, 0, 0, false, false, false, begin},
		{1, 0, 0, false, false, true, 2 * begin}, // with what has been counted since
		{length, 20, time.Millisecond, false, false, true, 2 * begin},
		{length, 20, time.Millisecond, false, true, true, 4 * begin},
		{length, 1, time.Millisecond, true, false, false, 4 * begin}, // too few responses
		{length - 1, 19, time.Millisecond, false, false, false, 4 * begin},
		{1, 0, 0, false, false, true, 8 * begin},
		{length, 20, 3 * time.Millisecond, true, false, true, 8 * begin}, // a queue in the application
		{length, 20, 3 * time.Millisecond, true, false, true, 6 * begin},
		{length, 20, 100 * time.Millisecond, false, false, true, 6 * begin},
		{399 * time.Millisecond, 20, 100 * time.Millisecond, false, false, false, 6 * begin}, // the next one is as long as four of them
		{1 * time.Millisecond, 0, 0, false, false, true, 6 * begin},
		{10 * time.Second, 0, 0, false, false, false, 6 * begin},
		{20 * time.Second, 0, 0, false, false, true, 6 * begin}, // the longest one
	} {
		now += step.after
		for range step.responses {
			slots.Auto.Sums.Add(Sample(step.latency))
		}
		if step.taken {
			for slots.Take(false) {
			}
			slots.InUse.Store(0)
		}
		closed := slots.Auto.CloseWindow(now, step.queued)
		if got := slots.Limit.Load(); closed != step.closed || got != step.limit {
			t.Errorf("step %d: closed %t, limit %d, want %t and %d", i, closed, got, step.closed, step.limit)
		}
	}
}

// TestAutoOverLoops: of the loops that find the end of a window at the same time, one closes it.
func TestAutoOverLoops(t *testing.T) {
	for range 100 {
		var limit, closed atomic.Int32
		a := NewAuto(&limit)
		a.Sums.Add(20 * Sample(time.Millisecond))
		var loops sync.WaitGroup
		for range 4 {
			loops.Go(func() {
				if a.CloseWindow(time.Hour, false) {
					closed.Add(1)
				}
			})
		}
		loops.Wait()
		if n, left := closed.Load(), a.Sums.Load(); n != 1 || left != 0 {
			t.Fatalf("closed %d times, %d is left of it", n, left)
		}
	}
}

// TestAutoLate: the limit rises only after a window in which at most half of the requests reached their deadline, unless the
// application had less time for them than it usually takes. The next window begins without late requests.
func TestAutoLate(t *testing.T) {
	var limit atomic.Int32
	a := NewAuto(&limit)
	now := time.Hour
	for i, c := range []struct {
		late   uint64
		time   time.Duration
		raises bool
	}{{11, time.Millisecond, false}, {10, time.Millisecond, true}, {11, time.Millisecond / 2, true}, {0, 0, true}} {
		now += time.Second
		a.Sums.Add(10 * Sample(time.Millisecond))
		a.Late.Add(c.late * Sample(c.time))
		before := limit.Load()
		if !a.CloseWindow(now, true) || a.Late.Load() != 0 || (limit.Load() > before) != c.raises {
			t.Errorf("window %d: the limit is %d, and was %d; the sum of the late requests is %d", i, limit.Load(), before, a.Late.Load())
		}
	}
}
