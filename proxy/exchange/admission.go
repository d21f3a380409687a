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
	for n := sl.Queued.Load(); n > 0 && sl.TakeQueued(); n-- {
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

// admissionQueue is one loop's queue for a service's slots, each list in order of arrival.
// Primaries come before retries, but for one slot in retryEvery. Which of the classes gets a
// slot is decided for all loops together: see nextInLine.
type admissionQueue struct {
	primary, retry Queue // of class online
	batch          Queue
	passed         int                   // primaries that went first since the last retry
	oldest         [classes]atomic.Int64 // when the class's head was queued; other loops read it
	granted        [classes]int          // slots passed to this loop and not yet used
	grant          loop.Flush            // dispatches them at the end of the turn
	post           [classes]func()       // passes a slot and dispatches; for other loops to Post
}

// half is the part of a limit that batch requests may fill, so that they are refused first.
func half(n int32) int32 { return (n + 1) / 2 }

// class is the priority of requests that wait.
type class uint8

const (
	online class = iota
	batch
	classes
)

func (q *admissionQueue) init(dispatch func()) {
	q.grant.Do = dispatch
	for c := range classes {
		q.oldest[c].Store(neverQueued)
		q.post[c] = func() {
			q.granted[c]++
			dispatch()
		}
	}
}

// classOf returns the class that a list belongs to.
func (q *admissionQueue) classOf(list *Queue) class {
	if list == &q.batch {
		return batch
	}
	return online
}

// admit asks for a slot for a, which comes after those of its class and of a higher one that
// wait. A hedge, of this sidecar or the caller's, never queues: without a free slot it is
// refused at once. Batch requests fill half of the queue at most. Without a limit, a hedge of the
// caller's is refused if every endpoint is stalled or has no spare capacity; for this sidecar's
// hedges PickHedge has checked that.
func (s *Service) admit(a *Attempt) admitResult {
	sl := &s.shared.slots
	if sl.Limit.Load() == 0 {
		if a.kind == primaryAttempt && a.race.hedged && s.set.PickHedge(s.query(a.race.key, nil), true) == nil {
			return slotRefused
		}
		return slotGranted
	}
	ahead, most := sl.Queued.Load(), sl.MaxQueue.Load()
	if a.race.batch {
		most = half(most)
	} else {
		ahead -= sl.Batch.Load()
	}
	if ahead <= 0 && sl.Take(a.race.batch) {
		a.slot = true
		return slotGranted
	}
	if a.kind == hedgeAttempt || a.race.hedged {
		return slotRefused
	}
	if sl.Queued.Add(1) > most {
		sl.Queued.Add(-1)
		return slotRefused
	}
	s.wait(a)
	return slotQueued
}

func (s *Service) wait(a *Attempt) {
	a.state.become(attemptQueued)
	q, c := &s.queue, online
	list := &q.primary
	switch {
	case a.race.batch:
		list, c = &q.batch, batch
		s.shared.slots.Batch.Add(1)
	case a.kind == retryAttempt || a.race.attempt > 0:
		list = &q.retry
	}
	list.insert(a, nil, s.Shard.Loop.Now())
	q.publishOldest(c)
	// A slot may have become free after Take failed and before a was queued. Whoever
	// released it found an empty queue.
	if s.shared.slots.Take(a.race.batch) {
		s.passSlot(s, c)
	}
}

func (s *Service) unqueue(a *Attempt) {
	if a.queued.list == nil {
		return
	}
	a.race.queued += s.Shard.Loop.Now() - a.queued.since
	c := s.queue.classOf(a.queued.list)
	a.queued.list.Remove(a)
	s.shared.slots.Queued.Add(-1)
	if c == batch {
		s.shared.slots.Batch.Add(-1)
	}
	s.queue.publishOldest(c)
}

// release passes a slot on, or frees it if no attempt waits that may have it. If the limit was
// lowered below the slots in use, the slot ends.
func (s *Service) release() {
	sl := &s.shared.slots
	for {
		if sl.Queued.Load() > 0 && sl.InUse.Load() <= sl.Limit.Load() {
			if next, c := s.nextInLine(); next != nil {
				s.passSlot(next, c)
				return
			}
		}
		sl.InUse.Add(-1)
		// Another loop may have queued meanwhile after it found all slots taken. It
		// asks for a slot after queueing, and this loop looks at the queue after
		// freeing the slot, so one of the two sees the other.
		if !sl.TakeQueued() {
			return
		}
	}
}

// nextInLine returns the loop and the class that a released slot is for, or nil. Batch requests
// get a slot if none of the others waits and enough slots stay free for those, or if it is
// their turn.
func (s *Service) nextInLine() (next *Service, c class) {
	sl := &s.shared.slots
	if sl.Batch.Load() == 0 {
		return s.longestWaiting(online), online
	}
	if !sl.BatchTurn() {
		if next = s.longestWaiting(online); next != nil || sl.InUse.Load() > sl.Share(true) {
			return next, online
		}
	}
	return s.longestWaiting(batch), batch
}

// longestWaiting returns the loop where an attempt of class c has waited longest, or nil.
func (s *Service) longestWaiting(c class) (longest *Service) {
	since := int64(neverQueued)
	for i := range s.shared.loops {
		other := s.shared.loops[i].Load()
		if other == nil {
			continue
		}
		if t := other.queue.oldest[c].Load(); t < since {
			longest, since = other, t
		}
	}
	return longest
}

// passSlot passes a slot that this loop holds to another loop, or to itself.
func (s *Service) passSlot(to *Service, c class) {
	if to == s {
		s.queue.granted[c]++
		s.Shard.Loop.Defer(&s.queue.grant)
		return
	}
	to.Shard.Loop.Post(to.queue.post[c])
}

// dispatchQueued sends queued attempts with the slots that were passed to this loop.
func (s *Service) dispatchQueued() {
	for c := range classes {
		for s.queue.granted[c] > 0 {
			s.queue.granted[c]--
			a := s.queue.next(c)
			if a == nil { // cancelled meanwhile
				s.release()
				continue
			}
			s.unqueue(a)
			a.slot = true
			a.send(nil)
		}
	}
}

// next is the attempt of class c that gets the next slot, or nil.
func (q *admissionQueue) next(c class) *Attempt {
	if c == batch {
		return q.batch.head
	}
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

// publishOldest tells the other loops since when an attempt of class c waits.
func (q *admissionQueue) publishOldest(c class) {
	oldest := int64(neverQueued)
	for _, l := range [...]*Queue{&q.primary, &q.retry, &q.batch} {
		if l.head != nil && q.classOf(l) == c {
			oldest = min(oldest, int64(l.head.queued.since))
		}
	}
	q.oldest[c].Store(oldest)
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

// First returns the head. The queue must not be empty.
func (l *Queue) First() *Attempt { return l.head }

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
