package proxy

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy/adaptive"
)

// autoLimit moves the limit of a service's slots (max_concurrency: auto). All
// loops measure into one window; the one that finds it over closes it.
type autoLimit struct {
	slots *atomic.Int32 // the limit that is moved

	sums    atomic.Uint64 // of the window, see sample
	reached atomic.Bool   // a request has found all slots taken
	ends    atomic.Int64  // when the window may be closed, on the loops' clock

	// Owned by the loop that has set ends to closing.
	limit *adaptive.Limit
	began time.Duration
}

// closing is the end of a window that some loop is closing.
const closing = math.MaxInt64

// A window's number of answers and the sum of their latencies, in microseconds,
// share a word, so that they belong together. A window lasts half a minute at
// most, and no slot adds more latency to it than that and longestSample.
const (
	sumBits       = 40
	longestSample = time.Minute
)

func newAutoLimit(slots *atomic.Int32) *autoLimit {
	a := &autoLimit{slots: slots, limit: adaptive.New()}
	slots.Store(int32(a.limit.Value()))
	return a
}

// sample is one answer, as it is added to the sums.
func sample(latency time.Duration) uint64 {
	return 1<<sumBits | uint64(min(latency, longestSample)/time.Microsecond)
}

// reach notes that there was no slot for a request. Without an automatic limit
// it does nothing.
func (a *autoLimit) reach() {
	if a != nil && !a.reached.Load() {
		a.reached.Store(true)
	}
}

// measured notes that the application has finished with a request that was sent
// at that time, or was given up on it. If that ends a window, those who wait get
// the slots there are from then on.
func (s *service) measured(sent time.Duration) {
	sl := &s.shared.slots
	if sl.auto == nil {
		return
	}
	now := s.w.loop.Now()
	sl.auto.sums.Add(sample(now - sent))
	if !sl.auto.close(now, sl.queued.Load() > 0) {
		return
	}
	s.giveFree()
}

// giveFree gives free slots to those who wait for one, after a change of the limit.
func (s *service) giveFree() {
	sl := &s.shared.slots
	for n := sl.queued.Load(); n > 0 && sl.take(); n-- {
		s.release()
	}
}

// close closes the window if that is over, and sets the limit anew.
func (a *autoLimit) close(now time.Duration, queued bool) bool {
	end := a.ends.Load()
	if int64(now) < end || !a.ends.CompareAndSwap(end, closing) {
		return false
	}
	sums := a.sums.Load()
	closed := a.limit.Update(adaptive.Window{
		Elapsed: now - a.began,
		Answers: int(sums >> sumBits),
		Latency: time.Duration(sums&(1<<sumBits-1)) * time.Microsecond,
		Reached: queued || a.reached.Load(),
	})
	if closed {
		a.sums.Add(-sums)
		a.reached.Store(false)
		a.began = now
		a.slots.Store(int32(a.limit.Value()))
	}
	a.ends.Store(int64(now + a.limit.Length()))
	return closed
}
