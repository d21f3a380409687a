package limit

import "sync/atomic"

// Slots are the places in front of a service's application (max_concurrency)
// and the bound of the queue for them. They are limits of the process, so they
// are atomics; the queues themselves belong to the loops.
type Slots struct {
	Limit    atomic.Int32 // 0: none
	Auto     *Auto        // moves limit; nil: it stays
	MaxQueue atomic.Int32
	InUse    atomic.Int32
	Queued   atomic.Int32
}

func (s *Slots) Take() bool {
	for {
		n := s.InUse.Load()
		if n >= s.Limit.Load() {
			s.Auto.reach()
			return false
		}
		if s.InUse.CompareAndSwap(n, n+1) {
			return true
		}
	}
}
