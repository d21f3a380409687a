package shard

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Stamps are the times at which targets of requests were invalidated, for all loops: what caches have
// asked for before is of no use. A target is known by its hash, and has a stamp of its own from when a cache
// asks for it: what is asked for later is of use until the target is stamped. If there are more targets
// than room, the one goes that is kept for the shortest time, and what caches have of it is of no use either. So a
// target may be taken for invalidated that was not, never the other way round, and no target is by an
// unsafe request to another.
type Stamps struct {
	Seed   uint64                        // of the hashes
	levels atomic.Pointer[[]*stampLevel] // nil without caches
	wanted atomic.Int64                  // targets for which there must be room
}

// stampLevel is a table of targets. The first one of a Stamps takes new targets. The others had too little
// room, or too much: they go when what caches have of their targets has expired.
type stampLevel struct {
	sets  []stampSet
	until atomic.Int64 // the latest time until which a target is kept
}

const (
	stampWays = 8 // targets of a set
	stampFill = 5 // that a set has on average if all the room is used

	// TargetBytes is the memory that Stamps take for each target for which there is room.
	TargetBytes = 4 * 8 * stampWays / stampFill
)

// stampSet has the targets whose hashes lead there. Times are of the loops' clock, in nanoseconds.
type stampSet struct {
	target [stampWays]atomic.Uint64 // its hash, noTarget, or movingTarget while the slot gets another one
	since  [stampWays]atomic.Int64  // when it came here
	kept   [stampWays]atomic.Int64  // until when a cache may have something of it
	stamp  [stampWays]atomic.Int64  // when it was invalidated; before since, never
}

const (
	noTarget     = 0
	movingTarget = 1
	leastTarget  = 2 // smaller hashes count as this one
)

func (l *stampLevel) set(hash uint64) *stampSet {
	i, _ := bits.Mul64(hash, uint64(len(l.sets)))
	return &l.sets[i]
}

// Expect makes room for so many targets more. A negative number gives back the room of as many.
func (s *Stamps) Expect(targets int) {
	s.wanted.Add(int64(targets))
	s.arrange(0) // a worker that is being made has no clock
}

// arrange makes the first level fit what is wanted, and drops older ones of whose targets nothing is kept at a
// time. What is dropped counts as invalidated.
func (s *Stamps) arrange(now time.Duration) {
	for {
		old, next := s.levels.Load(), (*[]*stampLevel)(nil)
		if wanted := s.wanted.Load(); wanted > 0 {
			var levels []*stampLevel
			if old != nil {
				levels = *old
			}
			levels = arranged(levels, int(wanted/stampFill)+1, now)
			next = &levels
		}
		if s.levels.CompareAndSwap(old, next) {
			return
		}
	}
}

// arranged returns levels of which the first has from sets to twice as many, which a reload needs for a
// moment. Of the others only the newest may be larger than the first; the rest together may not.
func arranged(old []*stampLevel, sets int, now time.Duration) []*stampLevel {
	if len(old) == 0 || len(old[0].sets) < sets || len(old[0].sets) > 2*sets {
		old = append([]*stampLevel{{sets: make([]stampSet, sets)}}, old...)
	}
	levels, room := old[:1:1], len(old[0].sets)
	for _, l := range old[1:] {
		if l.until.Load() <= int64(now) || len(levels) > 1 && len(l.sets) > room {
			continue
		}
		levels, room = append(levels, l), room-len(l.sets)
	}
	return levels
}

// Keep notes that a cache may have a response of a target until a time. The target comes into the first level:
// else an older level that has the target would stay for ever.
func (s *Stamps) Keep(hash uint64, now, until time.Duration) {
	levels := s.levels.Load()
	if levels == nil {
		return
	}
	hash = max(hash, leastTarget)
	first := (*levels)[0]
	raise(&first.until, int64(until))
	if set := first.set(hash); !set.keep(hash, until) {
		set.add(hash, now, until)
	}
	for _, l := range (*levels)[1:] {
		if l.until.Load() <= int64(now) {
			s.arrange(now)
			return
		}
	}
}

// keep reports whether the target is there. Then it stays until a time.
func (s *stampSet) keep(hash uint64, until time.Duration) bool {
	for i := range s.target {
		if s.target[i].Load() == hash {
			raise(&s.kept[i], int64(until))
			return s.target[i].Load() == hash
		}
	}
	return false
}

// add adds a target. If two loops add it at once, it is there twice.
func (s *stampSet) add(hash uint64, now, until time.Duration) {
	for range stampWays { // other loops may take slots, too
		at, least := 0, int64(-1)
		for i := range s.target {
			t, kept := s.target[i].Load(), s.kept[i].Load()
			if t == noTarget {
				kept = 0
			}
			if t != movingTarget && (least < 0 || kept < least) {
				at, least = i, kept
			}
		}
		if t := s.target[at].Load(); t != movingTarget && s.target[at].CompareAndSwap(t, movingTarget) {
			s.fill(at, hash, now, until)
			return
		}
	}
}

// fill puts a target into a slot that is moving, unless another loop has added it since add has looked: it may
// have been invalidated then. If it is invalidated from now on, Set finds the slot.
func (s *stampSet) fill(at int, hash uint64, now, until time.Duration) {
	if s.keep(hash, until) {
		s.target[at].Store(noTarget)
		return
	}
	s.since[at].Store(int64(now))
	raise(&s.stamp[at], int64(now)-1)
	s.kept[at].Store(int64(until))
	s.target[at].Store(hash)
}

// Set notes that a target was invalidated now.
func (s *Stamps) Set(hash uint64, now time.Duration) {
	hash = max(hash, leastTarget)
	levels := s.levels.Load()
	if levels == nil {
		return
	}
	for _, l := range *levels {
		set := l.set(hash)
		for i := range set.target {
			if t := set.target[i].Load(); t == hash || t == movingTarget { // which may become this one
				raise(&set.stamp[i], int64(now))
			}
		}
	}
}

// Since reports whether a target may have been invalidated at a time, or after it.
func (s *Stamps) Since(hash uint64, t time.Duration) bool {
	levels := s.levels.Load()
	if levels == nil {
		return true
	}
	hash = max(hash, leastTarget)
	for _, l := range *levels {
		set := l.set(hash)
		for i := range set.target {
			if set.target[i].Load() == hash && set.since[i].Load() <= int64(t) && set.stamp[i].Load() < int64(t) && set.target[i].Load() == hash {
				return false
			}
		}
	}
	return true
}

// raise sets *a to n unless it is larger.
func raise(a *atomic.Int64, n int64) {
	for {
		last := a.Load()
		if last >= n || a.CompareAndSwap(last, n) {
			return
		}
	}
}

// Invalidated returns the stamps of the process.
func (s *Shard) Invalidated() *Stamps {
	at := &s.Process.invalidated
	if at.Load() == nil {
		at.CompareAndSwap(nil, &Stamps{Seed: s.IDs.Uint64()})
	}
	return at.Load()
}
