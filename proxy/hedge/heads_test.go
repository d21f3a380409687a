package hedge

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestHeads: heads are held where more than four fifths of the first bytes come in time.
func TestHeads(t *testing.T) {
	var h Heads
	if h.Hold() {
		t.Error("heads are held before any first byte")
	}
	if h.Followed(); !h.Hold() {
		t.Error("heads are not held after a first byte in time")
	}
	for range 100 {
		h.Followed()
	}
	missed := 0
	for ; h.Hold(); missed++ {
		h.Missed()
	}
	if missed != 2 {
		t.Errorf("%d heads were held in vain, want 2", missed)
	}
	h.Missed()
	h.Missed() // they were in flight
	followed := 0
	for ; !h.Hold(); followed++ {
		h.Followed()
	}
	if followed != int(mostScore)+1 {
		t.Errorf("heads are held again after %d first bytes in time, want %d", followed, mostScore+1)
	}
	for share, want := range map[float64]float64{1: 0.99, 0.95: 0.95, 0.5: 0.35, 0.1: 0.05, 0: 0} {
		h, held := Heads{}, 0
		rnd := rand.New(rand.NewPCG(1, 2))
		for range 10_000 {
			if h.Hold() {
				held++
			}
			switch inTime := rnd.Float64() < share; {
			case inTime:
				h.Followed()
			case h.Hold():
				h.Missed()
			}
		}
		got := float64(held) / 10_000
		t.Logf("%.0f%% of the first bytes come in time: %.0f%% of the heads are held", 100*share, 100*got)
		if share >= 0.8 && got < want || share <= 0.5 && got > want {
			t.Errorf("%.2f of the heads are held, want %.2f", got, want)
		}
	}
}

// TestHeadHold: a head is held for a delay for each hedge, and another for the last one to respond.
func TestHeadHold(t *testing.T) {
	for most := 1; most <= 2; most++ {
		r := NewRoute(Policy{Mode: On, Delay: 20 * time.Millisecond, Max: most}, 1)
		if got, want := r.Delays.HeadHold(0, 0), time.Duration(1+most)*20*time.Millisecond; got != want {
			t.Errorf("max %d: held for %v, want %v", most, got, want)
		}
	}
}
