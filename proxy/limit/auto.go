package limit

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy/limit/adaptive"
)

// Auto moves the limit of a service's slots (max_concurrency: auto). All
// loops measure into one window; the one that finds it over closes it.
type Auto struct {
	slots *atomic.Int32 // the limit that is moved

	Sums    atomic.Uint64 // of the window, see sample
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

func NewAuto(slots *atomic.Int32) *Auto {
	a := &Auto{slots: slots, limit: adaptive.New()}
	slots.Store(int32(a.limit.Value()))
	return a
}

// Sample is one answer, as it is added to the sums.
func Sample(latency time.Duration) uint64 {
	return 1<<sumBits | uint64(min(latency, longestSample)/time.Microsecond)
}

// reach notes that there was no slot for a request. Without an automatic limit
// it does nothing.
func (a *Auto) reach() {
	if a != nil && !a.reached.Load() {
		a.reached.Store(true)
	}
}

// CloseWindow closes the window if that is over, and sets the limit anew.
func (a *Auto) CloseWindow(now time.Duration, queued bool) bool {
	end := a.ends.Load()
	if int64(now) < end || !a.ends.CompareAndSwap(end, closing) {
		return false
	}
	sums := a.Sums.Load()
	closed := a.limit.Update(adaptive.Window{
		Elapsed: now - a.began,
		Answers: int(sums >> sumBits),
		Latency: time.Duration(sums&(1<<sumBits-1)) * time.Microsecond,
		Reached: queued || a.reached.Load(),
	})
	if closed {
		a.Sums.Add(-sums)
		a.reached.Store(false)
		a.began = now
		a.slots.Store(int32(a.limit.Value()))
	}
	a.ends.Store(int64(now + a.limit.Length()))
	return closed
}
