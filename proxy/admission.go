package proxy

import (
	"math"
	"sync/atomic"
	"time"
)

// slots are the places in front of a service's application (max_concurrency)
// and the bound of the queue for them. They are limits of the process, so they
// are atomics; the queues themselves belong to the loops.
type slots struct {
	limit    atomic.Int32 // 0: none
	auto     *autoLimit   // moves limit; nil: it stays
	maxQueue atomic.Int32
	inUse    atomic.Int32
	queued   atomic.Int32
}

func (s *slots) take() bool {
	for {
		n := s.inUse.Load()
		if n >= s.limit.Load() {
			s.auto.reach()
			return false
		}
		if s.inUse.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// slotOutcome is what an attempt that asks for a slot gets.
type slotOutcome uint8

const (
	slotGranted slotOutcome = iota
	slotQueued              // send follows when one is free
	slotRefused
)

// neverQueued is the head time of an empty queue.
const neverQueued = math.MaxInt64

// retryShare is of how many slots one goes to a retry when primaries wait too:
// behind all primaries, retries would never be served by an application that is
// always busy, and a lost replica would cost every request that it had.
const retryShare = 4

// admissionQueue is one loop's queue for a service's slots: those that were not
// tried before come first, but for one slot in retryShare; each in order of
// arrival.
type admissionQueue struct {
	primary, retry waitList
	passed         int          // retries have waited for so many primaries
	oldest         atomic.Int64 // since when the head waits; other loops read it
	granted        int          // slots handed to this loop and not given out yet
	grant          Flush        // gives them out at the end of the turn
	post           func()       // the same, for other loops to Post
}

// waitList is an intrusive FIFO of attempts.
type waitList struct{ head, tail *attempt }

type queueLink struct {
	next, prev *attempt
	since      time.Duration
	list       *waitList
}

func (l *waitList) push(a *attempt, now time.Duration) { l.insert(a, nil, now) }

// insert puts a before another, or at the end.
func (l *waitList) insert(a, before *attempt, since time.Duration) {
	prev := l.tail
	if before != nil {
		prev = before.waiting.prev
	}
	a.waiting = queueLink{prev: prev, next: before, since: since, list: l}
	if prev == nil {
		l.head = a
	} else {
		prev.waiting.next = a
	}
	if before == nil {
		l.tail = a
	} else {
		before.waiting.prev = a
	}
}

// insertByID puts a where it belongs by the id that its carrier gave it: ids rise from the
// head to the tail.
func (l *waitList) insertByID(a *attempt, since time.Duration) {
	var next *attempt
	if l.tail != nil && l.tail.stream > a.stream {
		for next = l.head; next.stream < a.stream; {
			next = next.waiting.next
		}
	}
	l.insert(a, next, since)
}

// empty reports whether no attempt waits.
func (l *waitList) empty() bool { return l.head == nil }

// since is when the head began to wait. The list is not empty.
func (l *waitList) since() time.Duration { return l.head.waiting.since }

// pop takes out the head, nil if there is none.
func (l *waitList) pop() *attempt {
	a := l.head
	if a != nil {
		l.remove(a)
	}
	return a
}

func (l *waitList) remove(a *attempt) {
	q := &a.waiting
	if q.prev == nil {
		l.head = q.next
	} else {
		q.prev.waiting.next = q.next
	}
	if q.next == nil {
		l.tail = q.prev
	} else {
		q.next.waiting.prev = q.prev
	}
	a.waiting = queueLink{}
}

// admit asks for a slot for a. A hedge never queues: it is refused at once, be it
// ours or that of the sidecar that sent it. Where no slots are counted, one that
// was sent here is refused when every application is stalled or busy; for one of
// ours PickHedge has seen to that.
func (s *service) admit(a *attempt) slotOutcome {
	sl := &s.shared.slots
	if sl.limit.Load() == 0 {
		if a.kind == primaryAttempt && a.ex.hedged && s.set.PickHedge(s.w.loop.Now(), s.w.rnd, nil) == nil {
			return slotRefused
		}
		return slotGranted
	}
	if sl.queued.Load() == 0 && sl.take() {
		a.slot = true
		return slotGranted
	}
	if a.kind == hedgeAttempt || a.ex.hedged {
		return slotRefused
	}
	if sl.queued.Add(1) > sl.maxQueue.Load() {
		sl.queued.Add(-1)
		return slotRefused
	}
	s.wait(a)
	return slotQueued
}

// wait puts a into this loop's queue.
func (s *service) wait(a *attempt) {
	a.state = attemptWaiting
	list := &s.queue.primary
	if a.kind == retryAttempt || a.ex.attempt > 0 {
		list = &s.queue.retry
	}
	list.push(a, s.w.loop.Now())
	s.publishOldest()
	// A slot may have become free between the failed take and the queueing; its
	// releaser then saw an empty queue.
	if s.shared.slots.take() {
		s.handOver(s)
	}
}

// unqueue takes a withdrawn attempt out of the queue, if it is there.
func (s *service) unqueue(a *attempt) {
	if a.waiting.list == nil {
		return
	}
	a.ex.queued += s.w.loop.Now() - a.waiting.since
	a.waiting.list.remove(a)
	s.shared.slots.queued.Add(-1)
	s.publishOldest()
}

// release gives a slot back: to the loop whose queue's head has waited longest,
// or to all when nobody waits. A slot that a lowered limit has no room for is
// gone.
func (s *service) release() {
	sl := &s.shared.slots
	for {
		if sl.queued.Load() > 0 && sl.inUse.Load() <= sl.limit.Load() {
			if next := s.longestWaiting(); next != nil {
				s.handOver(next)
				return
			}
		}
		sl.inUse.Add(-1)
		// Someone may have queued meanwhile and found all slots taken: whoever
		// queues looks for a slot after that, and we look at the queue after
		// giving ours back, so one of the two sees the other.
		if sl.queued.Load() == 0 || !sl.take() {
			return
		}
	}
}

// longestWaiting is this service on the loop whose queue's head is the oldest,
// or nil.
func (s *service) longestWaiting() (longest *service) {
	since := int64(neverQueued)
	for i := range s.shared.loops {
		other := s.shared.loops[i].Load()
		if other == nil {
			continue
		}
		if t := other.queue.oldest.Load(); t < since {
			longest, since = other, t
		}
	}
	return longest
}

// handOver passes a slot that this loop holds to another, or to itself.
func (s *service) handOver(to *service) {
	if to == s {
		s.queue.granted++
		s.w.loop.Defer(&s.queue.grant)
		return
	}
	to.w.loop.Post(to.queue.post)
}

// giveOut spends the slots that were handed to this loop on its queue.
func (s *service) giveOut() {
	for s.queue.granted > 0 {
		s.queue.granted--
		a := s.queue.next()
		if a == nil { // withdrawn meanwhile
			s.release()
			continue
		}
		s.unqueue(a)
		a.slot = true
		a.send(nil)
	}
}

// next is the attempt whose turn it is, or nil.
func (q *admissionQueue) next() *attempt {
	first, second := q.primary.head, q.retry.head
	if first == nil || second == nil {
		q.passed = 0
		if first == nil {
			return second
		}
		return first
	}
	if q.passed++; q.passed == retryShare {
		q.passed = 0
		return second
	}
	return first
}

func (s *service) publishOldest() {
	oldest := int64(neverQueued)
	for _, l := range [...]*waitList{&s.queue.primary, &s.queue.retry} {
		if l.head != nil {
			oldest = min(oldest, int64(l.head.waiting.since))
		}
	}
	s.queue.oldest.Store(oldest)
}
