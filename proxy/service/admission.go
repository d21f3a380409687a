package service

import (
	"cmp"
	"math"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy/fifo"
	"github.com/remora-proxy/remora/proxy/limit"
	"github.com/remora-proxy/remora/proxy/loop"
)

// Admission gives slots of a service to attempts of one loop, and queues those that wait for one.
type Admission struct {
	service *Service
	slots   *limit.Slots // of all loops
	queue   admissionQueue
}

func (a *Admission) init(s *Service) {
	a.service, a.slots = s, &s.Shared.slots
	a.queue.init(a.dispatchQueued)
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

// behindOthers is added to the time of a tied hedge, so that it comes behind others on whichever loop they wait.
const behindOthers = 1 << 62

// One slot in retryEvery goes to a retry while primaries wait too. If retries waited
// behind all primaries, an application that is always busy would never serve them, and
// the loss of a replica would cost every request that it had.
const retryEvery = 4

// places is one of the lists of an admissionQueue.
type places = fifo.Queue[*Place]

// admissionQueue is one loop's queue for a service's slots, each list in order of arrival.
// Primaries come before retries, but for one slot in retryEvery. Tied hedges come last of their class. Which of the
// classes gets a slot is decided for all loops together: see nextInLine.
type admissionQueue struct {
	primary, retry, tied places // of class online
	batch                places
	passed               int                   // primaries that went first since the last retry
	oldest               [classes]atomic.Int64 // when the class's head was queued; other loops read it
	granted              [classes]int          // slots passed to this loop and not yet used
	grant                loop.Flush            // dispatches them at the end of the turn
	post                 [classes]func()       // passes a slot and dispatches; for other loops to Post
}

// half is the part of a limit that batch requests and tied hedges may fill, so that they are refused first.
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
	Hedge  bool // by this sidecar or by the caller: it never queues, unless it is tied
	Tied   bool // a hedge that queues behind all others of its class, until the caller withdraws it
	Spare  bool // the caller has sent it as a hedge: without a limit it needs an endpoint with spare capacity
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
// wait. A hedge that is not tied never queues: without a free slot it is refused at once. Batch requests
// and tied hedges fill half of the queue at most.
func (a *Admission) Admit(p *Place, by *Ask) AdmitResult {
	sl := a.slots
	if sl.Limit.Load() == 0 || by.Stream {
		if by.Spare && a.service.Set.PickHedge(a.service.Query(by.Key, nil), true) == nil {
			return SlotRefused
		}
		return SlotGranted
	}
	switch {
	case a.takeFree(by):
		p.slot = true
		return SlotGranted
	case by.Hedge && !by.Tied || !a.reservePlace(by):
		return SlotRefused
	}
	a.wait(p, by)
	a.settle(slotFreed)
	return SlotQueued
}

// takeFree takes a slot, and reports whether one is free for which no other request waits.
func (a *Admission) takeFree(by *Ask) bool {
	sl := a.slots
	online, batch := sl.Waiting.Load()
	free := online == 0 && (batch == 0 || !by.Batch)
	return free && sl.Take(by.Batch)
}

// reservePlace takes a place in the queue, and reports whether there was one.
func (a *Admission) reservePlace(by *Ask) bool {
	sl := a.slots
	most := sl.MaxQueue.Load()
	if by.Batch || by.Tied {
		most = half(most)
	}
	if sl.Waiting.Add(by.Batch) > most {
		sl.Waiting.Remove(by.Batch)
		return false
	}
	return true
}

// wait queues p, for which reservePlace has taken the place. settle(slotFreed) must follow.
func (a *Admission) wait(p *Place, by *Ask) {
	q, c := &a.queue, online
	list := &q.primary
	switch {
	case by.Batch:
		list, c = &q.batch, batch
	case by.Tied:
		list = &q.tied
		a.service.Stats.TiedQueued++
	case by.Retry:
		list = &q.retry
	}
	list.Add(&p.node, p, a.service.Shard.Loop.Now())
	q.publishOldest(c)
}

// Withdraw takes p out of the queue, if it waits there, and returns how long it has.
func (a *Admission) Withdraw(p *Place) (waited time.Duration) {
	list := p.node.Queue()
	if list == nil {
		return 0
	}
	waited = p.Waits(a.service.Shard.Loop.Now())
	c := a.queue.classOf(list)
	a.leaveQueue(p, c)
	a.queue.publishOldest(c)
	return waited
}

// leaveQueue takes p, of class c, out of the queue. publishOldest must follow.
func (a *Admission) leaveQueue(p *Place, c class) {
	p.node.Remove()
	a.slots.Waiting.Remove(c == batch)
}

// GiveBack gives back the slot of p, if it has one.
func (a *Admission) GiveBack(p *Place) {
	if p.slot {
		p.slot = false
		a.settle(slotReleased)
	}
}

// RecordServiceTime notes that the application has finished a request that was sent at
// sent, or that the sidecar has stopped waiting for it.
func (a *Admission) RecordServiceTime(sent time.Duration) {
	if auto := a.slots.Auto; auto != nil {
		a.record(&auto.Sums, sent)
	}
}

// RecordDeadline notes that a request that was sent at sent has reached its deadline.
func (a *Admission) RecordDeadline(sent time.Duration) {
	if auto := a.slots.Auto; auto != nil {
		a.record(&auto.Late, sent)
	}
}

// record adds to the sums of the window. At the end of a window it dispatches queued attempts, since the limit may have
// changed.
func (a *Admission) record(sums *atomic.Uint64, sent time.Duration) {
	now := a.service.Shard.Loop.Now()
	sums.Add(limit.Sample(now - sent))
	if a.slots.Auto.CloseWindow(now, a.slots.Waiting.All() > 0) {
		a.wakeQueued()
	}
}

// dispatchQueued sends queued attempts with the slots that were passed to this loop.
func (a *Admission) dispatchQueued() {
	for c := range classes {
		for a.queue.granted[c] > 0 {
			if !a.give(c) {
				a.settle(slotReleased)
			}
		}
	}
}

// give gives a slot that was passed to this loop to an attempt of class c. It reports whether one still waits.
func (a *Admission) give(c class) bool {
	a.queue.granted[c]--
	p := a.queue.next(c)
	if p == nil {
		return false
	}
	waited := a.Withdraw(p)
	p.slot = true
	p.waiter.Granted(waited)
	return true
}

// next is the attempt of class c that gets the next slot, or nil.
func (q *admissionQueue) next(c class) *Place {
	if c == batch {
		return q.batch.First()
	}
	first, second := q.primary.First(), q.retry.First()
	if first == nil || second == nil {
		q.passed = 0
		return cmp.Or(first, second, q.tied.First())
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
	if c == online && !q.tied.Empty() {
		oldest = min(oldest, int64(q.tied.Since())+behindOthers)
	}
	q.oldest[c].Store(oldest)
}
