package loop

import "time"

// Slack is how late a timer of a request may fire, see Due.
const Slack = 500 * time.Microsecond

// Due is when a timer of a request is due. If it fires more than Slack later, the loop was busy or had no CPU: events
// that came meanwhile may say that the request is over, and wait behind the timer. So the timer is put off behind
// them, once: a loop that is always late gets on, too.
type Due time.Duration

// PutOff reports whether the timer is too late for the first time. Then the owner arms it again, for now.
func (d *Due) PutOff(now time.Duration) bool {
	if *d == putOff || now <= time.Duration(*d)+Slack {
		return false
	}
	*d = putOff
	return true
}

// putOff is the Due of a timer that may be late by any time. It is before all others.
const putOff Due = -1

// Timer is a one-shot timer, embedded in its owner and reused. Fire is set
// once, before the first After. The zero value with Fire set is disarmed.
type Timer struct {
	// Fire is called on the loop when the timer is due; it may arm it again.
	Fire func()

	// Pooled says that the owner goes to a free list when it ends. It is cheap to disarm such
	// a timer and to arm it again, but until its time passes a disarmed one may keep its owner
	// in memory. Pooled is set once, as Fire is.
	Pooled bool

	armed bool
	at    time.Duration
	seq   uint64 // order among equal times

	// The heap position may belong to an earlier due time than at.
	pos       int // 1 + index in the heap; 0 means not in the heap
	placedAt  time.Duration
	placedSeq uint64
}

// Armed reports whether t is waiting to fire.
func (t *Timer) Armed() bool { return t.armed }

// Flush is deferred work, embedded in its owner and reused.
type Flush struct {
	// Do is called at the end of the turn. It may Defer the Flush again, for the next turn.
	Do func()

	queued bool
}
