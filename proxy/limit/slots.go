package limit

import "sync/atomic"

// Slots are the requests that a service's application may have at once (max_concurrency), and
// the bound of the queue for them.
type Slots struct {
	Limit    atomic.Int32 // 0 means no limit: nothing may be taken
	Auto     *Auto        // adjusts Limit; nil means that Limit is fixed
	MaxQueue atomic.Int32 // requests that may wait, over all loops
	InUse    atomic.Int32 // slots that are taken
	Queued   atomic.Int32 // requests that wait, over all loops
	Batch    atomic.Int32 // those of Queued that are batch
	turns    atomic.Uint32
}

// batchLeaves is the part of the slots that batch requests leave free, at least one of two or
// more: an online request that comes then need not wait for a batch request to end. While batch
// requests wait, one released slot in batchEvery is for them, whoever else waits.
const (
	batchLeaves = 8
	batchEvery  = 16
)

// Share returns how many slots may be in use once a request has taken one.
func (s *Slots) Share(batch bool) int32 {
	n := s.Limit.Load()
	if batch {
		n = max(1, n-max(1, n/batchLeaves))
	}
	return n
}

// BatchTurn counts a slot that was released while batch requests wait, and reports whether one
// of them must get it.
func (s *Slots) BatchTurn() bool { return s.turns.Add(1)%batchEvery == 0 }

// TakeQueued takes a slot for one of the requests that wait. It reports whether there was one
// that may have it.
func (s *Slots) TakeQueued() bool {
	batch := s.Batch.Load()
	return s.Queued.Load() > batch && s.Take(false) || batch > 0 && s.Take(true)
}

// Take takes a slot for a request. It reports whether one was free.
func (s *Slots) Take(batch bool) bool {
	for {
		n := s.InUse.Load()
		if n >= s.Share(batch) {
			s.Auto.reach()
			return false
		}
		if s.InUse.CompareAndSwap(n, n+1) {
			return true
		}
	}
}
