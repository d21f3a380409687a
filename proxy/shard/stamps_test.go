package shard

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestStamps: a target that was invalidated is never forgotten, and no other is taken for one, however
// many unsafe requests there are.
func TestStamps(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	s, at := &Stamps{}, map[uint64]time.Duration{}
	s.Invalidate(7, 0) // nobody has a cache
	s.Expect(2000)
	var kept []uint64
	for range 500 {
		kept = append(kept, rnd.Uint64())
		s.Keep(kept[len(kept)-1], 0, time.Hour)
	}
	for now := time.Millisecond; now < 100*time.Second; now += time.Millisecond {
		hash := rnd.Uint64() // nothing is kept of most of these
		if rnd.IntN(100) == 0 {
			hash = kept[rnd.IntN(len(kept))]
			at[hash] = now
		}
		s.Invalidate(hash, now)
	}
	for _, hash := range kept {
		last, set := at[hash]
		if set && !s.InvalidatedSince(hash, last) {
			t.Fatal("an invalidation was forgotten")
		}
		if s.InvalidatedSince(hash, last+1) {
			t.Fatal("a target was taken for another")
		}
	}
	if len(at) < 300 {
		t.Errorf("%d invalidated", len(at))
	}
}

// TestStampsOfAnyHash: the hashes that stand for no target are those of targets, too.
func TestStampsOfAnyHash(t *testing.T) {
	for hash := range uint64(leastTarget + 1) {
		s := &Stamps{}
		s.Expect(1)
		if !s.InvalidatedSince(hash, 1) {
			t.Errorf("%d: a target of which nothing is kept is known", hash)
		}
		if s.Keep(hash, 1, time.Hour); s.InvalidatedSince(hash, 1) {
			t.Errorf("%d: the target is not known", hash)
		}
		if s.Invalidate(hash, 5); !s.InvalidatedSince(hash, 5) || s.InvalidatedSince(hash, 6) {
			t.Errorf("%d: the invalidation was forgotten", hash)
		}
	}
}

// TestStampsFull: of too many targets those go that are kept for the shortest time, and what was asked for
// before they come again is of no use.
func TestStampsFull(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	s := &Stamps{}
	s.Expect(1000)
	var long, short []uint64
	for range 500 {
		long = append(long, rnd.Uint64())
		s.Keep(long[len(long)-1], 1, time.Hour)
	}
	for range 20_000 {
		short = append(short, rnd.Uint64())
		s.Keep(short[len(short)-1], 1, time.Second)
	}
	lost := 0
	for _, hash := range long {
		if s.InvalidatedSince(hash, 1) {
			lost++
		}
	}
	if lost > 5 {
		t.Errorf("%d of %d that are kept for long were lost", lost, len(long))
	}
	first := short[0]
	if !s.InvalidatedSince(first, 1) {
		t.Fatal("a target without room is known")
	}
	if s.Keep(first, 9, time.Hour); !s.InvalidatedSince(first, 8) || s.InvalidatedSince(first, 9) {
		t.Error("it came again")
	}
}

// TestStampsGrow: room for more loses no target, and is not made twice.
func TestStampsGrow(t *testing.T) {
	s := &Stamps{}
	s.Expect(100)
	s.Keep(1<<60, 1, time.Hour)
	s.Expect(1000)
	if s.Keep(1<<60, 2, time.Hour); s.InvalidatedSince(1<<60, 1) || len(*s.levels.Load()) != 2 {
		t.Error("the target was lost")
	}
	for range 10 {
		s.Expect(-1000)
		s.Expect(1000)
	}
	s.Expect(1000) // the level before has no target
	if s.Invalidate(1<<60, 5); !s.InvalidatedSince(1<<60, 5) || len(*s.levels.Load()) != 2 {
		t.Errorf("%d levels", len(*s.levels.Load()))
	}
}

// TestStampsBounded: levels that had too little room or too much are given back when nothing is kept of their
// targets any more, also while these are in use. Until then only one may be larger than the first level.
func TestStampsBounded(t *testing.T) {
	const hash = 1 << 60
	s, now := &Stamps{}, time.Duration(1)
	levels := func() (all []*stampLevel) {
		if at := s.levels.Load(); at != nil {
			all = *at
		}
		return all
	}
	for range 100 { // in small steps, each level in use
		s.Expect(100)
		s.Keep(hash, now, now+time.Hour)
		first, older := len(levels()[0].sets), 0
		for _, l := range levels()[1:] {
			older += len(l.sets)
		}
		if first < int(s.wanted.Load())/stampFill || older > first {
			t.Fatalf("the levels have room for %d and %d sets", first, older)
		}
	}
	s.Expect(-9900)
	if all := levels(); len(all) != 2 || len(all[0].sets) != 100/stampFill+1 || s.InvalidatedSince(hash, now) {
		t.Errorf("after fewer are wanted: %d levels, target lost: %t", len(all), s.InvalidatedSince(hash, now))
	}
	for range 3 {
		s.Keep(hash, now, now+time.Hour)
		now += 30 * time.Minute
	}
	if len(levels()) != 1 || s.InvalidatedSince(hash, now) {
		t.Errorf("later: %d levels, target lost: %t", len(levels()), s.InvalidatedSince(hash, now))
	}
	s.Expect(-100)
	s.Keep(hash, now, now+time.Hour) // by a request that outlives its route
	if s.Invalidate(hash, now); len(levels()) != 0 || !s.InvalidatedSince(hash, now) {
		t.Errorf("without caches: %d levels", len(levels()))
	}
}

// TestStampsOfLoops: what several loops do at once forgets no invalidation.
func TestStampsOfLoops(t *testing.T) {
	s := &Stamps{}
	s.Expect(8)
	var all sync.WaitGroup
	for id := range uint64(4) {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(id, 1))
			for now := time.Duration(1); now < 20_000; now++ {
				hash := rnd.Uint64() >> 2 << 2
				s.Keep(hash|id, now, now+time.Duration(rnd.IntN(50)))
				s.Invalidate(hash|id, now+1)
				if !s.InvalidatedSince(hash|id, now+1) {
					t.Error("an invalidation was forgotten")
					return
				}
			}
		})
	}
	all.Wait()
}

// TestStampsTwice: while one loop adds a target, another adds it, too, and it is invalidated. That holds for what
// the slots of both have.
func TestStampsTwice(t *testing.T) {
	const hash = 1 << 60
	start := func() (*Stamps, *stampSet) {
		s := &Stamps{}
		s.Expect(1)
		return s, (*s.levels.Load())[0].set(hash)
	}
	s, set := start()
	s.Keep(hash, 5, time.Hour)
	s.Invalidate(hash, 6)
	set.add(hash, 4, time.Hour) // it has not found the other
	if !s.InvalidatedSince(hash, 5) {
		t.Error("a slot that was taken after the invalidation hides it")
	}
	s, set = start()
	set.target[0].Store(movingTarget)
	s.Invalidate(hash, 6)
	set.fill(0, hash, 4, time.Hour)
	set.target[1].Store(movingTarget)
	if set.fill(1, hash, 4, time.Hour); set.target[1].Load() != noTarget {
		t.Error("a target that another loop has added has a second slot")
	}
	if !s.InvalidatedSince(hash, 5) || s.InvalidatedSince(hash, 7) {
		t.Error("a slot that was being filled hides the invalidation")
	}
}

// TestStampsMoving: a target takes no slot that gets another one at that time. It is then not known.
func TestStampsMoving(t *testing.T) {
	const hash = 1 << 60
	s := &Stamps{}
	s.Expect(1)
	set := (*s.levels.Load())[0].set(hash)
	for i := range set.target {
		set.target[i].Store(movingTarget)
	}
	if s.Keep(hash, 5, time.Hour); !s.InvalidatedSince(hash, 5) {
		t.Error("the target has the slot of another")
	}
	set.target[3].Store(noTarget)
	if s.Keep(hash, 6, time.Hour); s.InvalidatedSince(hash, 6) || set.target[3].Load() != hash {
		t.Error("the target is not in the only slot that does not move")
	}
}

// TestInvalidated: all loops of a process have the same stamps.
func TestInvalidated(t *testing.T) {
	p := &Process{Loops: 2}
	one, other := New(p, 0, &turn{}, nil, 1), New(p, 1, &turn{}, nil, 1)
	if all := one.Invalidated(); all == nil || all != other.Invalidated() || all != one.Invalidated() {
		t.Error("loops have stamps of their own")
	}
}

// TestArranged: the first level fits, the newest of the others may be larger, and the rest may not, together.
func TestArranged(t *testing.T) {
	const now = 10
	for _, c := range []struct {
		old, until []int // of the levels
		sets       int
		want       []int
	}{
		{nil, nil, 3, []int{3}},
		{[]int{8}, []int{20}, 8, []int{8}},
		{[]int{8}, []int{20}, 4, []int{8}},
		{[]int{8}, []int{20}, 3, []int{3, 8}},
		{[]int{8}, []int{20}, 9, []int{9, 8}},
		{[]int{4, 2, 2, 1}, []int{20, 20, 20, 20}, 4, []int{4, 2, 2}},
		{[]int{4, 2, 3, 2}, []int{20, 20, 20, 20}, 4, []int{4, 2, 2}},
		{[]int{4, 100, 4, 1}, []int{20, 20, 20, 20}, 4, []int{4, 100}},
		{[]int{4, 2, 1, 2}, []int{20, now, now + 1, 20}, 4, []int{4, 1, 2}},
	} {
		var old []*stampLevel
		for i, sets := range c.old {
			l := &stampLevel{sets: make([]stampSet, sets)}
			l.until.Store(int64(c.until[i]))
			old = append(old, l)
		}
		var got []int
		for _, l := range arranged(old, c.sets, now) {
			got = append(got, len(l.sets))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("of %v until %v for %d sets: %v, want %v", c.old, c.until, c.sets, got, c.want)
		}
	}
}
