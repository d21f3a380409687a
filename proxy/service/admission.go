package service

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy/fifo"
	"github.com/remora-proxy/remora/proxy/limit"
	"github.com/remora-proxy/remora/proxy/loop"
)

// RecordServiceTime notes that the application has finished a request that was sent at
// sent, or that the sidecar has stopped waiting for it. At the end of a window it
// dispatches queued attempts, since the limit may have changed.
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

// wakeQueued gives free slots to queued attempts after a change of the limit.
func (s *Service) wakeQueued() {
	sl := &s.shared.slots
	for n := sl.Queued.Load(); n > 0 && sl.TakeQueued(); n-- {
		s.release()
	}
}

// AdmitResult is whether an attempt has a slot.
type AdmitResult uint8

// The values of AdmitResult.
const (
	SlotGranted AdmitResult = iota
	SlotQueued              // Waiter.Granted follows once a slot is free
	SlotRefused
)

// neverQueued stands for the oldest attempt of an empty queue.
const neverQueued = math.MaxInt64

// One slot in retryEvery goes to a retry while primaries wait too. If retries waited
// behind all primaries, an application that is always busy would never serve them, and
// the loss of a replica would cost every request that it had.
const retryEvery = 4

// places is one of the lists of an admissionQueue.
type places = fifo.Queue[*Place]

// admissionQueue is one loop's queue for a service's slots, each list in order of arrival.
// Primaries come before retries, but for one slot in retryEvery. Which of the classes gets a
// slot is decided for all loops together: see nextInLine.
type admissionQueue struct {
	primary, retry places // of class online
	batch          places
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
func (q *admissionQueue) classOf(list *places) class {
	if list == &q.batch {
		return batch
	}
	return online
}

// Ask is an attempt that asks for a slot.
type Ask struct {
	Key    uint64 // of the request, if the service picks by key
	Batch  bool
	Retry  bool // by this sidecar or by the caller
	Hedge  bool // by this sidecar or by the caller: it never queues
	Spare  bool // without a limit it needs an endpoint with spare capacity
	Stream bool // it takes no slot
}

// Place is what an attempt has of a service: a slot, or a place in the queue for one. It belongs to one
// Waiter.
type Place struct {
	waiter Waiter
	slot   bool
	node   fifo.Node[*Place]
}

// Init makes p the place of w.
func (p *Place) Init(w Waiter) { p.waiter = w }

// Waiter is an attempt that may wait for a slot.
type Waiter interface {
	// Granted is called when the attempt has got its slot, after it waited for so long.
	Granted(waited time.Duration)
}

// HasSlot reports whether p is a slot.
func (p *Place) HasSlot() bool { return p.slot }

// Waits returns how long p has been in the queue, 0 if it is in none.
func (p *Place) Waits(now time.Duration) time.Duration {
	if p.node.Queue() == nil {
		return 0
	}
	return now - p.node.Since()
}

// Admit asks for a slot for p, which comes after those of its class and of a higher one that
// wait. A hedge never queues: without a free slot it is refused at once. Batch requests fill half of
// the queue at most.
func (s *Service) Admit(p *Place, by *Ask) AdmitResult {
	sl := &s.shared.slots
	if sl.Limit.Load() == 0 || by.Stream {
		if by.Spare && s.Set.PickHedge(s.Query(by.Key, nil), true) == nil {
			return SlotRefused
		}
		return SlotGranted
	}
	ahead, most := sl.Queued.Load(), sl.MaxQueue.Load()
	if by.Batch {
		most = half(most)
	} else {
		ahead -= sl.Batch.Load()
	}
	if ahead <= 0 && sl.Take(by.Batch) {
		p.slot = true
		return SlotGranted
	}
	if by.Hedge {
		return SlotRefused
	}
	if sl.Queued.Add(1) > most {
		sl.Queued.Add(-1)
		return SlotRefused
	}
	s.wait(p, by)
	return SlotQueued
}

func (s *Service) wait(p *Place, by *Ask) {
	q, c := &s.queue, online
	list := &q.primary
	switch {
	case by.Batch:
		list, c = &q.batch, batch
		s.shared.slots.Batch.Add(1)
	case by.Retry:
		list = &q.retry
	}
	list.Add(&p.node, p, s.Shard.Loop.Now())
	q.publishOldest(c)
	// A slot may have become free after Take failed and before p was queued. Whoever
	// released it found an empty queue.
	if s.shared.slots.Take(by.Batch) {
		s.passSlot(s, c)
	}
}

// Withdraw takes p out of the queue, if it waits there, and returns how long it has.
func (s *Service) Withdraw(p *Place) (waited time.Duration) {
	list := p.node.Queue()
	if list == nil {
		return 0
	}
	waited = p.Waits(s.Shard.Loop.Now())
	p.node.Remove()
	c := s.queue.classOf(list)
	s.shared.slots.Queued.Add(-1)
	if c == batch {
		s.shared.slots.Batch.Add(-1)
	}
	s.queue.publishOldest(c)
	return waited
}

// Leave gives back the slot of p, if it has one.
func (s *Service) Leave(p *Place) {
	if p.slot {
		p.slot = false
		s.release()
	}
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
			p := s.queue.next(c)
			if p == nil { // cancelled meanwhile
				s.release()
				continue
			}
			waited := s.Withdraw(p)
			p.slot = true
			p.waiter.Granted(waited)
		}
	}
}

// next is the attempt of class c that gets the next slot, or nil.
func (q *admissionQueue) next(c class) *Place {
	if c == batch {
		return q.batch.First()
	}
	first, second := q.primary.First(), q.retry.First()
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
	for _, l := range [...]*places{&q.primary, &q.retry, &q.batch} {
		if !l.Empty() && q.classOf(l) == c {
			oldest = min(oldest, int64(l.Since()))
		}
	}
	q.oldest[c].Store(oldest)
}
