package limit

import "sync/atomic"

// Slots are the requests that a service's application may have at once (max_concurrency), and
// the bound of the queue for them.
type Slots struct {
	Limit    atomic.Int32 // 0 means no limit: nothing may be taken
	Auto     *Auto        // adjusts Limit; nil means that Limit is fixed
	MaxQueue atomic.Int32 // requests that may wait, over all loops
	InUse    atomic.Int32 // slots that are taken
	Waiting  Waiting      // requests that wait, over all loops
	turns    atomic.Uint32
}

// Waiting counts requests of both classes. The counts share a word: with two, a loop could see a request that comes or
// goes in one of them only, and leave a slot free that another request waits for.
type Waiting struct{ counts atomic.Int64 }

// onlineBits is where the count of online requests begins. Below it is that of batch requests.
const onlineBits = 32

// one returns the counts of one request.
func one(batch bool) int64 {
	if batch {
		return 1
	}
	return 1 << onlineBits
}

// Add counts a request, and returns how many requests wait, this one included.
func (w *Waiting) Add(batch bool) (all int32) { return sum(w.counts.Add(one(batch))) }

// Remove uncounts a request.
func (w *Waiting) Remove(batch bool) { w.counts.Add(-one(batch)) }

// All returns how many requests wait.
func (w *Waiting) All() int32 { return sum(w.counts.Load()) }

// Load returns how many requests of each class wait.
func (w *Waiting) Load() (online, batch int32) { return split(w.counts.Load()) }

func split(counts int64) (online, batch int32) { return int32(counts >> onlineBits), int32(counts) }

func sum(counts int64) int32 {
	online, batch := split(counts)
	return online + batch
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
	online, batch := s.Waiting.Load()
	return online > 0 && s.Take(false) || batch > 0 && s.Take(true)
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
