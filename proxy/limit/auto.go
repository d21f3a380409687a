package limit

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy/limit/adaptive"
)

// Auto adjusts the limit of a service's slots (max_concurrency: auto). All loops
// measure into one window. The first loop to find that the window has ended closes it.
type Auto struct {
	slots *atomic.Int32 // the limit that Auto adjusts

	Sums    atomic.Uint64 // of the window: each response adds its Sample
	Late    atomic.Uint64 // of the window: each request that reaches its deadline adds the Sample of the time until then
	reached atomic.Bool   // a request found all slots taken
	ends    atomic.Int64  // when the window may be closed, on the loops' clock

	// Owned by the loop that has set ends to closing.
	limit *adaptive.Limit
	began time.Duration
}

// closing is the value of ends while a loop closes the window.
const closing = math.MaxInt64

// A window's number of responses and the sum of their latencies, in microseconds,
// share a word, so that one atomic operation changes both. A window lasts half a minute
// at most, and a slot adds at most that time and longestSample to the latencies.
const (
	sumBits       = 40
	longestSample = time.Minute
)

// NewAuto returns an Auto that adjusts slots, and sets slots to its first limit.
func NewAuto(slots *atomic.Int32) *Auto {
	a := &Auto{slots: slots, limit: adaptive.New()}
	slots.Store(int32(a.limit.Value()))
	return a
}

// Sample returns one response in the form in which it is added to Auto.Sums.
func Sample(latency time.Duration) uint64 {
	return 1<<sumBits | uint64(min(latency, longestSample)/time.Microsecond)
}

// splitSamples returns the number of Samples in a sum, and the sum of their latencies.
func splitSamples(sum uint64) (n int, latency time.Duration) {
	return int(sum >> sumBits), time.Duration(sum&(1<<sumBits-1)) * time.Microsecond
}

// reach records that a request found no free slot. It does nothing if a is nil.
func (a *Auto) reach() {
	if a != nil && !a.reached.Load() {
		a.reached.Store(true)
	}
}

// CloseWindow closes the window if it has ended at now, sets the limit for the next one, and
// reports whether it did. queued says that requests wait for a slot.
func (a *Auto) CloseWindow(now time.Duration, queued bool) bool {
	end := a.ends.Load()
	if int64(now) < end || !a.ends.CompareAndSwap(end, closing) {
		return false
	}
	sums, late := a.Sums.Load(), a.Late.Load()
	w := adaptive.Window{Elapsed: now - a.began, Reached: queued || a.reached.Load()}
	w.Answers, w.Latency = splitSamples(sums)
	w.Late, w.LateTime = splitSamples(late)
	closed := a.limit.Update(w)
	if closed {
		a.Sums.Add(-sums)
		a.Late.Add(-late)
		a.reached.Store(false)
		a.began = now
		a.slots.Store(int32(a.limit.Value()))
	}
	a.ends.Store(int64(now + a.limit.Length()))
	return closed
}
