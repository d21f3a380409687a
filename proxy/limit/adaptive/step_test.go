package adaptive

import (
	"testing"
	"time"
)

// window is one in which requests found the limit reached, with this mean latency.
func window(mean time.Duration) Window {
	return Window{Elapsed: time.Second, Answers: 100, Latency: 100 * mean, Reached: true}
}

// TestSteps: a window changes the limit by a quarter at most, and by half of what the latency asks for.
func TestSteps(t *testing.T) {
	for mean, want := range map[time.Duration]int{
		100 * ms:               75,  // a freeze
		2 * ms:                 85,  // (100 + 135/2 + 1) / 2, rounded up
		1 * ms:                 118, // (100 + 135 + 1) / 2
		900 * time.Microsecond: 125,
	} {
		l := &Limit{phase: steady, limit: 100, base: float64(ms), latency: float64(ms), probeIn: probeEvery}
		if l.Update(window(mean)); l.Value() != want {
			t.Errorf("a latency of %v: %d, want %d", mean, l.Value(), want)
		}
	}
}

// TestProbeEvery: after so many windows at the limit a probe halves it, and windows below the limit do not count.
func TestProbeEvery(t *testing.T) {
	l := &Limit{phase: steady, limit: 100, base: float64(ms), latency: float64(ms), probeIn: 3}
	for i, reached := range []bool{true, false, true, true} {
		if l.phase != steady {
			t.Fatalf("a probe before window %d", i)
		}
		w := window(ms)
		w.Reached = reached
		l.Update(w)
	}
	if whole := int(l.limit); l.phase != draining || l.Value() != whole/2 {
		t.Errorf("no probe: phase %d, limit %d of %d", l.phase, l.Value(), whole)
	}
}
