package limit

import "testing"

// TestSlotsTaken: requests get slots up to the limit. Batch requests leave an eighth of them free, at least one of two or more.
func TestSlotsTaken(t *testing.T) {
	for _, c := range []struct{ limit, batch int32 }{{1, 1}, {2, 1}, {3, 2}, {8, 7}, {15, 14}, {16, 14}, {80, 70}} {
		for _, batch := range []bool{true, false} {
			var s Slots
			s.Limit.Store(c.limit)
			want := map[bool]int32{true: c.batch, false: c.limit}[batch]
			for n := int32(0); n <= want; n++ {
				if got := s.Take(batch); got != (n < want) || s.InUse.Load() != min(n+1, want) {
					t.Errorf("limit %d, batch %t: slot %d is taken: %t, %d in use", c.limit, batch, n, got, s.InUse.Load())
				}
			}
			if s.Share(batch) != want {
				t.Errorf("limit %d, batch %t: the share is %d, want %d", c.limit, batch, s.Share(batch), want)
			}
		}
	}
}

// TestSlotsQueued: a slot is taken for a request that waits, and that may have it.
func TestSlotsQueued(t *testing.T) {
	for _, c := range []struct {
		online, batch int // that wait
		inUse         int32
		want          bool
	}{
		{0, 0, 0, false}, {1, 0, 0, true}, {2, 0, 7, true}, {1, 0, 8, false},
		{0, 1, 0, true}, {0, 2, 6, true}, {0, 1, 7, false}, {1, 1, 7, true}, {1, 1, 8, false},
	} {
		var s Slots
		s.Limit.Store(8)
		s.InUse.Store(c.inUse)
		for range c.online {
			s.Waiting.Add(false)
		}
		for range c.batch {
			s.Waiting.Add(true)
		}
		if got := s.TakeQueued(); got != c.want {
			t.Errorf("%+v: taken %t", c, got)
		}
	}
}

// TestWaitingCounts: the requests of both classes are counted, and together.
func TestWaitingCounts(t *testing.T) {
	var w Waiting
	for i, step := range []struct {
		batch, removed  bool
		online, batches int32
	}{
		{false, false, 1, 0}, {true, false, 1, 1}, {true, false, 1, 2}, {false, false, 2, 2},
		{true, true, 2, 1}, {false, true, 1, 1}, {false, true, 0, 1}, {true, true, 0, 0},
	} {
		if step.removed {
			w.Remove(step.batch)
		} else if all := w.Add(step.batch); all != step.online+step.batches {
			t.Errorf("step %d: %d wait with the new one", i, all)
		}
		if online, batch := w.Load(); online != step.online || batch != step.batches || w.All() != online+batch {
			t.Errorf("step %d: %d and %d wait, %d in all, want %d and %d", i, online, batch, w.All(), step.online, step.batches)
		}
	}
}

// TestBatchTurns: one slot in batchEvery is for a batch request.
func TestBatchTurns(t *testing.T) {
	var s Slots
	for i := 1; i <= 3*batchEvery; i++ {
		if got := s.BatchTurn(); got != (i%batchEvery == 0) {
			t.Errorf("slot %d: %t", i, got)
		}
	}
}
