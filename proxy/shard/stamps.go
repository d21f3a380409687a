package shard

import (
	"sync/atomic"
	"time"
)

// Stamps are the times at which targets of requests were invalidated, for all loops: what caches have
// asked for before is of no use. A target is known by its hash. Several share a slot, which has the
// time of the latest one of them, and the time before which nothing of any of them is of use. So a
// target may be taken for invalidated that was not, never the other way round.
type Stamps struct {
	Seed  uint64 // of the hashes
	slots [1 << 13]struct {
		kept   atomic.Int64 // until when a cache may have something of a target; other targets are not stamped
		latest atomic.Int64 // microseconds, and in the lowest bits part of the hash
		floor  atomic.Int64 // microseconds
	}
}

// tagBits of Stamps.latest are part of the hash.
const tagBits = 14

// tagOf is a part of the hash that does not decide the slot.
func tagOf(hash uint64) int64 { return int64(hash >> (64 - tagBits)) }

// Keep notes that a cache may have something of a target until then.
func (s *Stamps) Keep(hash uint64, until time.Duration) {
	raise(&s.slots[hash%uint64(len(s.slots))].kept, int64(until))
}

// Set notes that a target was invalidated now.
func (s *Stamps) Set(hash uint64, now time.Duration) {
	at := &s.slots[hash%uint64(len(s.slots))]
	if at.kept.Load() < int64(now) {
		return
	}
	stamp := now.Microseconds()<<tagBits | tagOf(hash)
	for {
		last := at.latest.Load()
		if last != 0 && last&(1<<tagBits-1) != tagOf(hash) {
			raise(&at.floor, last>>tagBits)
		}
		if last >= stamp || at.latest.CompareAndSwap(last, stamp) {
			return
		}
	}
}

// Since reports whether a target may have been invalidated at a time, or after it.
func (s *Stamps) Since(hash uint64, t time.Duration) bool {
	at := &s.slots[hash%uint64(len(s.slots))]
	last, asked := at.latest.Load(), t.Microseconds()
	return last != 0 && (last&(1<<tagBits-1) == tagOf(hash) && last>>tagBits >= asked || at.floor.Load() >= asked)
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
