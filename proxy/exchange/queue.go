package exchange

import "time"

// Queue is an intrusive FIFO of attempts.
type Queue struct{ head, tail *Attempt }

type queueNode struct {
	next, prev *Attempt
	since      time.Duration
	list       *Queue
}

func (l *Queue) push(a *Attempt, now time.Duration) { l.insert(a, nil, now) }

// insert puts a before another, or at the end.
func (l *Queue) insert(a, before *Attempt, since time.Duration) {
	prev := l.tail
	if before != nil {
		prev = before.queued.prev
	}
	a.queued = queueNode{prev: prev, next: before, since: since, list: l}
	if prev == nil {
		l.head = a
	} else {
		prev.queued.next = a
	}
	if before == nil {
		l.tail = a
	} else {
		before.queued.prev = a
	}
}

// InsertByID puts a where it belongs by the id that its carrier gave it: ids rise from the
// head to the tail.
func (l *Queue) InsertByID(a *Attempt, since time.Duration) {
	var next *Attempt
	if l.tail != nil && l.tail.carrierID > a.carrierID {
		for next = l.head; next.carrierID < a.carrierID; {
			next = next.queued.next
		}
	}
	l.insert(a, next, since)
}

// Empty reports whether no attempt waits.
func (l *Queue) Empty() bool { return l.head == nil }

// Since is when the head began to wait. The list is not empty.
func (l *Queue) Since() time.Duration { return l.head.queued.since }

// Pop takes out the head, nil if there is none.
func (l *Queue) Pop() *Attempt {
	a := l.head
	if a != nil {
		l.Remove(a)
	}
	return a
}

func (l *Queue) Remove(a *Attempt) {
	q := &a.queued
	if q.prev == nil {
		l.head = q.next
	} else {
		q.prev.queued.next = q.next
	}
	if q.next == nil {
		l.tail = q.prev
	} else {
		q.next.queued.prev = q.prev
	}
	a.queued = queueNode{}
}
