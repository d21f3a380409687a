package shard

import (
	"sync/atomic"
	"time"
)

// Stamps are the times at which something last happened to things, for all loops. Things are known
// by their hash, and a few share one time.
type Stamps struct {
	Seed uint64 // of the hashes
	last [4096]atomic.Int64
}

// Set notes that something happened to a thing now.
func (s *Stamps) Set(hash uint64, now time.Duration) {
	s.last[hash%uint64(len(s.last))].Store(int64(now))
}

// Since reports whether something may have happened to a thing at a time, or after it.
func (s *Stamps) Since(hash uint64, at time.Duration) bool {
	last := s.last[hash%uint64(len(s.last))].Load()
	return last != 0 && last >= int64(at)
}

// Invalidated are the times at which targets of requests were invalidated: what caches have stored
// of them before is of no use.
func (s *Shard) Invalidated() *Stamps {
	at := &s.Process.invalidated
	if at.Load() == nil {
		at.CompareAndSwap(nil, &Stamps{Seed: s.IDs.Uint64()})
	}
	return at.Load()
}
