package sidecar

import "testing"

// TestPercent: only a sidecar with much live heap has less garbage than live heap.
func TestPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: usualPercent, muchLive - 1: usualPercent, muchLive: lowPercent, 1 << 30: lowPercent} {
		if got := percentOf(live); got != want {
			t.Errorf("%d bytes: %d, want %d", live, got, want)
		}
	}
}
