package shard

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Stamps are the times at which targets of requests were invalidated, for all loops. A response that a
// cache asked for before the stamp of its target is invalid. A target is known by its hash. It gets a
// place in Stamps, and from then on a stamp of its own, when a cache keeps a response of it. If there are
// more targets than places, the one that is kept for the shortest time leaves, and counts as invalidated.
// So a target that was not invalidated may count as invalidated, but never the other way round. An unsafe
// request to one target never invalidates another.
type Stamps struct {
	Seed   uint64                        // of the hashes
	levels atomic.Pointer[[]*stampLevel] // nil without caches
	wanted atomic.Int64                  // targets for which there must be room
}

// stampLevel is a table of targets. The first level of Stamps takes new targets. The other levels had too
// little room, or too much. A level leaves when all that caches keep of its targets has expired.
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
	since  [stampWays]atomic.Int64  // when the target came into this slot
	kept   [stampWays]atomic.Int64  // until when a cache may keep a response of the target
	stamp  [stampWays]atomic.Int64  // when the target was invalidated; a time before since means never
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

// arrange makes the first level fit wanted, and drops older levels of whose targets nothing is kept any more
// at the time now. Targets that are dropped count as invalidated.
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

// arranged returns levels of which the first has at least sets, and at most twice as many: a reload needs
// twice as many for a moment. Of the other levels only the newest may be larger than the first; the rest
// together may not.
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

// Keep notes that a cache may keep a response of a target until the time until. The target comes into the
// first level: otherwise an older level that has the target would stay forever.
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

// keep reports whether the set has the target, which then stays at least until the time until.
func (s *stampSet) keep(hash uint64, until time.Duration) bool {
	for i := range s.target {
		if s.target[i].Load() == hash {
			raise(&s.kept[i], int64(until))
			return s.target[i].Load() == hash
		}
	}
	return false
}

// add adds a target. If two loops add the target at once, the set has it twice.
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

// fill puts a target into slot at, which is moving, unless another loop has added the target meanwhile: the
// target may have been invalidated since. If it is invalidated from now on, Invalidate finds the slot.
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

// Invalidate notes that a target was invalidated now.
func (s *Stamps) Invalidate(hash uint64, now time.Duration) {
	hash = max(hash, leastTarget)
	levels := s.levels.Load()
	if levels == nil {
		return
	}
	for _, l := range *levels {
		set := l.set(hash)
		for i := range set.target {
			if t := set.target[i].Load(); t == hash || t == movingTarget { // a slot that moves may become this target's
				raise(&set.stamp[i], int64(now))
			}
		}
	}
}

// InvalidatedSince reports whether a target may have been invalidated at a time, or after it.
func (s *Stamps) InvalidatedSince(hash uint64, t time.Duration) bool {
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

// raise sets *a to n, unless *a is larger.
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
