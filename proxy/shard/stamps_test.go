package shard

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestStamps: a target that was invalidated is never forgotten, and few others are taken for one.
func TestStamps(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	s, at := &Stamps{}, map[uint64]time.Duration{}
	var kept []uint64
	for range 2000 {
		kept = append(kept, rnd.Uint64())
		s.Keep(kept[len(kept)-1], time.Hour)
	}
	for now := time.Millisecond; now < 2*time.Second; now += time.Millisecond {
		hash := rnd.Uint64() // nothing is kept of most of these
		if rnd.IntN(4) == 0 {
			hash = kept[rnd.IntN(len(kept))]
			at[hash] = now
		}
		s.Set(hash, now)
	}
	wrong := 0
	for _, hash := range kept {
		last, set := at[hash]
		if set && !s.Since(hash, last) {
			t.Fatal("an invalidation was forgotten")
		}
		if s.Since(hash, last+time.Millisecond) {
			wrong++
		}
	}
	if len(at) < 300 || wrong > 60 {
		t.Errorf("%d invalidated, %d others taken for it", len(at), wrong)
	}
}

// TestStampsOfOneSlot: targets of one slot share a time only once a second one was invalidated.
func TestStampsOfOneSlot(t *testing.T) {
	s := &Stamps{}
	const a, b = 7, 7 | 1<<63
	s.Keep(a, time.Hour)
	s.Set(a, 10*time.Millisecond)
	if !s.Since(a, 10*time.Millisecond) || s.Since(a, 11*time.Millisecond) || s.Since(b, time.Millisecond) {
		t.Error("after the first")
	}
	s.Set(b, 20*time.Millisecond)
	if !s.Since(b, 20*time.Millisecond) || !s.Since(a, 10*time.Millisecond) || s.Since(a, 11*time.Millisecond) {
		t.Error("after the second")
	}
	s.Set(9, time.Millisecond)
	if s.Since(9, 0) {
		t.Error("a target that nobody keeps was noted")
	}
}
