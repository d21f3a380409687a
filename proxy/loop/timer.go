package loop

import "time"

// Timer is a one-shot timer, embedded in what it serves and reused. Fire is set
// once, before the first After. The zero value with Fire set is disarmed.
type Timer struct {
	// Fire is called on the loop when the timer is due; it may arm it again.
	Fire func()

	armed bool
	at    time.Duration
	seq   uint64 // order among equal times

	// Its place in the heap is that of a time that is not after at.
	pos       int // 1 + index; 0: it has none
	placedAt  time.Duration
	placedSeq uint64
}

// Armed tells whether t is waiting to fire.
func (t *Timer) Armed() bool { return t.armed }

// Flush is a deferred piece of work, embedded in what it flushes and reused.
type Flush struct {
	// Do is called at the end of the turn; it may Defer the Flush again, for
	// the end of the next turn.
	Do func()

	queued bool
}
