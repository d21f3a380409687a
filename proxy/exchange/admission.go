package exchange

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy/limit"
	"github.com/remora-proxy/remora/proxy/loop"
)

// recordServiceTime notes that the application has finished a request that was sent at
// sent, or that the sidecar has stopped waiting for it. At the end of a window it
// dispatches queued attempts, since the limit may have changed.
func (s *Service) recordServiceTime(sent time.Duration) {
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

// wakeQueued gives free slots to queued attempts after a change of the limit.
func (s *Service) wakeQueued() {
	sl := &s.shared.slots
	for n := sl.Queued.Load(); n > 0 && sl.Take(); n-- {
		s.release()
	}
}

type admitResult uint8

const (
	slotGranted admitResult = iota
	slotQueued              // send follows once a slot is free
	slotRefused
)

// neverQueued stands for the oldest attempt of an empty queue.
const neverQueued = math.MaxInt64

// One slot in retryEvery goes to a retry while primaries wait too. If retries waited
// behind all primaries, an application that is always busy would never serve them, and
// the loss of a replica would cost every request that it had.
const retryEvery = 4

// admissionQueue is one loop's queue for a service's slots. Primaries come before
// retries, but for one slot in retryEvery; each in order of arrival.
type admissionQueue struct {
	primary, retry Queue
	passed         int          // primaries that went first since the last retry
	oldest         atomic.Int64 // when the head was queued; other loops read it
	granted        int          // slots passed to this loop and not yet used
	grant          loop.Flush   // dispatches them at the end of the turn
	post           func()       // passes a slot and dispatches; for other loops to Post
}

// admit asks for a slot for a. A hedge, of this sidecar or the caller's, never queues: without
// a free slot it is refused at once. Without a limit, a hedge of the caller's is refused if
// every endpoint is stalled or has no spare capacity; for this sidecar's hedges PickHedge has checked that.
func (s *Service) admit(a *Attempt) admitResult {
	sl := &s.shared.slots
	if sl.Limit.Load() == 0 {
		if a.kind == primaryAttempt && a.ex.hedged && s.set.PickHedge(s.Shard.Loop.Now(), s.Shard.Rand, nil, true) == nil {
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

func (s *Service) wait(a *Attempt) {
	a.state.become(attemptQueued)
	list := &s.queue.primary
	if a.kind == retryAttempt || a.ex.attempt > 0 {
		list = &s.queue.retry
	}
	list.insert(a, nil, s.Shard.Loop.Now())
	s.publishOldest()
	// A slot may have become free after Take failed and before a was queued. Whoever
	// released it found an empty queue.
	if s.shared.slots.Take() {
		s.passSlot(s)
	}
}

func (s *Service) unqueue(a *Attempt) {
	if a.queued.list == nil {
		return
	}
	a.ex.queued += s.Shard.Loop.Now() - a.queued.since
	a.queued.list.Remove(a)
	s.shared.slots.Queued.Add(-1)
	s.publishOldest()
}

// release passes a slot to the loop whose queue's head has waited longest, or frees it
// if no attempt waits. If the limit was lowered below the slots in use, the slot ends.
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
		// Another loop may have queued meanwhile after it found all slots taken. It
		// asks for a slot after queueing, and this loop looks at the queue after
		// freeing the slot, so one of the two sees the other.
		if sl.Queued.Load() == 0 || !sl.Take() {
			return
		}
	}
}

// longestWaiting returns the service of the loop whose queue has the oldest head, or nil.
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

// passSlot passes a slot that this loop holds to another loop, or to itself.
func (s *Service) passSlot(to *Service) {
	if to == s {
		s.queue.granted++
		s.Shard.Loop.Defer(&s.queue.grant)
		return
	}
	to.Shard.Loop.Post(to.queue.post)
}

// dispatchQueued sends queued attempts with the slots that were passed to this loop.
func (s *Service) dispatchQueued() {
	for s.queue.granted > 0 {
		s.queue.granted--
		a := s.queue.next()
		if a == nil { // cancelled meanwhile
			s.release()
			continue
		}
		s.unqueue(a)
		a.slot = true
		a.send(nil)
	}
}

// next is the attempt that gets the next slot, or nil.
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

// queueNode is an attempt's place in a Queue.
type queueNode struct {
	next, prev *Attempt
	since      time.Duration
	list       *Queue
}

// insert puts a before another attempt or, if before is nil, at the end.
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

// InsertByID puts a in the order of its carrier's ids, which rise from head to tail.
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

// Since is when the head was queued. The queue must not be empty.
func (l *Queue) Since() time.Duration { return l.head.queued.since }

// Pop removes and returns the head, or nil.
func (l *Queue) Pop() *Attempt {
	a := l.head
	if a != nil {
		l.Remove(a)
	}
	return a
}

// Remove takes out a, which must be in the queue.
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
