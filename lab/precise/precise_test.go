package precise

import (
	"sync"
	"testing"
	"time"
)

// TestSleep checks only "at least d": how much longer a sleep may last depends on the machine.
// BenchmarkOversleep reports that.
func TestSleep(t *testing.T) {
	for _, d := range []time.Duration{-time.Second, 0, 1, time.Microsecond, 300 * time.Microsecond, 3 * time.Millisecond} {
		start := time.Now()
		Sleep(d)
		if got := time.Since(start); got < d {
			t.Errorf("Sleep(%v) returned after %v", d, got)
		}
	}
}

func TestManySleepers(t *testing.T) {
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			for j := range 5 {
				d := time.Duration(1+(i*7+j)%9) * 100 * time.Microsecond
				start := time.Now()
				Sleep(d)
				if got := time.Since(start); got < d {
					t.Errorf("Sleep(%v) returned after %v", d, got)
				}
			}
		})
	}
	wg.Wait()
}

func TestSleepUntilPast(t *testing.T) {
	SleepUntil(time.Now().Add(-time.Hour)) // a wait would exceed the test's time limit
}

func BenchmarkOversleep(b *testing.B) {
	const d = 1300 * time.Microsecond
	var over time.Duration
	for b.Loop() {
		start := time.Now()
		Sleep(d)
		over += time.Since(start) - d
	}
	b.ReportMetric(float64(over.Microseconds())/float64(b.N), "µs-late")
}
