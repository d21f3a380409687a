package exchange

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy/limit"
	"github.com/remora-proxy/remora/proxy/loop"
)

// RecordServiceTime notes that the application has finished with a request that was sent
// at that time, or was given up on it. If that ends a window, those who wait get
// the slots there are from then on.
func (s *Service) RecordServiceTime(sent time.Duration) {
	sl := &s.shared.slots
	if sl.Auto == nil {
		return
	}
	now := s.Shard.Loop.Now()
	sl.Auto.Sums.Add(limit.Sample(now - sent))
	if !sl.Auto.CloseWindow(now, sl.Queued.Load() > 0) {
		return
	}
	s.wakeQueued()
}

// wakeQueued gives free slots to those who wait for one, after a change of the limit.
func (s *Service) wakeQueued() {
	sl := &s.shared.slots
	for n := sl.Queued.Load(); n > 0 && sl.Take(); n-- {
		s.release()
	}
}

// admitResult is what an attempt that asks for a slot gets.
type admitResult uint8

const (
	slotGranted admitResult = iota
	slotQueued              // send follows when one is free
	slotRefused
)

// neverQueued is the head time of an empty queue.
const neverQueued = math.MaxInt64

// retryEvery is of how many slots one goes to a retry when primaries wait too:
// behind all primaries, retries would never be served by an application that is
// always busy, and a lost replica would cost every request that it had.
const retryEvery = 4

// admissionQueue is one loop's queue for a service's slots: those that were not
// tried before come first, but for one slot in retryEvery; each in order of
// arrival.
type admissionQueue struct {
	primary, retry Queue
	passed         int          // retries have waited for so many primaries
	oldest         atomic.Int64 // since when the head waits; other loops read it
	granted        int          // slots handed to this loop and not given out yet
	grant          loop.Flush   // gives them out at the end of the turn
	post           func()       // the same, for other loops to Post
}

// admit asks for a slot for a. A hedge never queues: it is refused at once, be it
// ours or that of the sidecar that sent it. Where no slots are counted, one that
// was sent here is refused when every application is stalled or busy; for one of
// ours PickHedge has seen to that.
func (s *Service) admit(a *Attempt) admitResult {
	sl := &s.shared.slots
	if sl.Limit.Load() == 0 {
		if a.kind == primaryAttempt && a.ex.hedged && s.set.PickHedge(s.Shard.Loop.Now(), s.Shard.Rand, nil) == nil {
			return slotRefused
		}
		return slotGranted
	}
	if sl.Queued.Load() == 0 && sl.Take() {
		a.slot = true
		return slotGranted
	}
	if a.kind == hedgeAttempt || a.ex.hedged {
		return slotRefused
	}
	if sl.Queued.Add(1) > sl.MaxQueue.Load() {
		sl.Queued.Add(-1)
		return slotRefused
	}
	s.wait(a)
	return slotQueued
}

// wait puts a into this loop's queue.
func (s *Service) wait(a *Attempt) {
	a.state = attemptQueued
	list := &s.queue.primary
	if a.kind == retryAttempt || a.ex.attempt > 0 {
		list = &s.queue.retry
	}
	list.push(a, s.Shard.Loop.Now())
	s.publishOldest()
	// A slot may have become free between the failed take and the queueing; its
	// releaser then saw an empty queue.
	if s.shared.slots.Take() {
		s.passSlot(s)
	}
}

// unqueue takes a withdrawn attempt out of the queue, if it is there.
func (s *Service) unqueue(a *Attempt) {
	if a.queued.list == nil {
		return
	}
	a.ex.queued += s.Shard.Loop.Now() - a.queued.since
	a.queued.list.Remove(a)
	s.shared.slots.Queued.Add(-1)
	s.publishOldest()
}

// release gives a slot back: to the loop whose queue's head has waited longest,
// or to all when nobody waits. A slot that a lowered limit has no room for is
// gone.
func (s *Service) release() {
	sl := &s.shared.slots
	for {
		if sl.Queued.Load() > 0 && sl.InUse.Load() <= sl.Limit.Load() {
			if next := s.longestWaiting(); next != nil {
				s.passSlot(next)
				return
			}
		}
		sl.InUse.Add(-1)
		// Someone may have queued meanwhile and found all slots taken: whoever
		// queues looks for a slot after that, and we look at the queue after
		// giving ours back, so one of the two sees the other.
		if sl.Queued.Load() == 0 || !sl.Take() {
			return
		}
	}
}

// longestWaiting is this service on the loop whose queue's head is the oldest,
// or nil.
func (s *Service) longestWaiting() (longest *Service) {
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

// passSlot passes a slot that this loop holds to another, or to itself.
func (s *Service) passSlot(to *Service) {
	if to == s {
		s.queue.granted++
		s.Shard.Loop.Defer(&s.queue.grant)
		return
	}
	to.Shard.Loop.Post(to.queue.post)
}

// dispatchQueued spends the slots that were handed to this loop on its queue.
func (s *Service) dispatchQueued() {
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
func (q *admissionQueue) next() *Attempt {
	first, second := q.primary.head, q.retry.head
	if first == nil || second == nil {
		q.passed = 0
		if first == nil {
			return second
		}
		return first
	}
	if q.passed++; q.passed == retryEvery {
		q.passed = 0
		return second
	}
	return first
}

func (s *Service) publishOldest() {
	oldest := int64(neverQueued)
	for _, l := range [...]*Queue{&s.queue.primary, &s.queue.retry} {
		if l.head != nil {
			oldest = min(oldest, int64(l.head.queued.since))
		}
	}
	s.queue.oldest.Store(oldest)
}

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
