package limit

import "sync/atomic"

// Slots are the requests that a service's application may have at once (max_concurrency), and
// the bound of the queue for them.
type Slots struct {
	Limit    atomic.Int32 // 0 means no limit: Take must not be called
	Auto     *Auto        // adjusts Limit; nil means that Limit is fixed
	MaxQueue atomic.Int32 // requests that may wait, over all loops
	InUse    atomic.Int32 // slots that are taken
	Queued   atomic.Int32 // requests that wait, over all loops
}

// Take takes a slot. It reports whether one was free.
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
