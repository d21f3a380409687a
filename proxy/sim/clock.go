package sim

import (
	"math/rand/v2"
	"time"
)

// clock is the virtual time, and the events that come due by it.
type clock struct {
	now     time.Duration
	events  queue
	scripts uint64 // scripts so far: they keep their order
	rand    random // of the World
}

// push queues e. Events due at the same time have this order: the network, at random;
// scripts, in the order of At; turns, at random.
func (c *clock) push(e event) {
	switch e.kind {
	case evScript:
		c.scripts++
		e.tie = 1<<62 | c.scripts
	case evWake:
		e.tie = 1<<63 | c.rand.Uint64()>>1
	default:
		e.tie = c.rand.Uint64() >> 2
	}
	c.events.push(e)
}

// next moves the time to the next event, and returns the event. If no event is due until
// end, next moves the time to end, and returns false.
func (c *clock) next(end time.Duration) (event, bool) {
	if len(c.events) == 0 || c.events[0].at > end {
		c.now = max(c.now, end)
		return event{}, false
	}
	e := c.events.pop()
	c.now = e.at
	return e, true
}

// random is the source of a World's random numbers.
type random struct{ *rand.Rand }

// chance is true with probability p.
func (r random) chance(p float64) bool { return p > 0 && r.Float64() < p }

// cut returns n, or with probability p a random smaller length of at least 1.
func (r random) cut(n int, p float64) int {
	if n <= 1 || !r.chance(p) {
		return n
	}
	if r.IntN(4) == 0 {
		return 1
	}
	return 1 + r.IntN(n-1)
}
