package service

// slotStep is a step of a slot that its holder has given back. The loop of the holder takes one step after
// another until the slot is settled: free, or passed to a loop where a request waits. That loop gives the slot to
// the request at the end of its turn.
//
//	            ┌───────────── pass ────────────▶ settled
//	released ▶ wanted                                ▲
//	   ▲  └──────┴──▶ surplus ──▶ freed ── nobody ───┘
//	   └────────── take it back ────┘
//
// Loops share the counts of limit.Slots and the times of admissionQueue.oldest, and take no lock. In whatever order
// they take their steps, no slot stays free while a request waits that may have it. When one loop frees a slot while
// another queues a request, at least one of them sees what the other has done: each looks only after it has written,
// since the loop that has queued a request takes the step freed, too. Steps repeat while another loop has counted a
// request, and has not queued it yet.
type slotStep uint8

const (
	slotReleased slotStep = iota // in use, for no request
	slotWanted                   // a request waits, and the limit was not lowered below the slots in use
	slotSurplus                  // no request may have it
	slotFreed                    // not in use any more; a request may have queued meanwhile
	slotSettled
)

// settle takes the steps from one on.
func (a *Admission) settle(from slotStep) {
	for from != slotSettled {
		from = a.step(from)
	}
}

// step takes one step, and returns the next.
func (a *Admission) step(at slotStep) slotStep {
	sl := a.slots
	switch at {
	case slotReleased:
		if sl.Waiting.All() > 0 && sl.InUse.Load() <= sl.Limit.Load() {
			return slotWanted
		}
		return slotSurplus
	case slotWanted:
		if next, c := a.nextInLine(); next != nil {
			a.passSlot(next, c)
			return slotSettled
		}
		return slotSurplus
	case slotSurplus:
		sl.InUse.Add(-1)
		return slotFreed
	case slotFreed:
		if sl.TakeQueued() {
			return slotReleased
		}
	case slotSettled:
	}
	return slotSettled
}

// wakeQueued gives free slots to queued attempts after a change of the limit.
func (a *Admission) wakeQueued() {
	sl := a.slots
	for n := sl.Waiting.All(); n > 0 && sl.TakeQueued(); n-- {
		a.settle(slotReleased)
	}
}

// nextInLine returns the loop and the class that a released slot is for, or nil. Batch requests
// get a slot if none of the others waits and enough slots stay free for those, or if it is
// their turn.
func (a *Admission) nextInLine() (next *Admission, c class) {
	sl := a.slots
	if _, waiting := sl.Waiting.Load(); waiting == 0 {
		return a.longestWaiting(online), online
	}
	if !sl.BatchTurn() {
		if next = a.longestWaiting(online); next != nil || sl.InUse.Load() > sl.Share(true) {
			return next, online
		}
	}
	return a.longestWaiting(batch), batch
}

// oldest returns since when the oldest attempt of class c waits.
func (a *Admission) oldest(c class) int64 { return a.queue.oldest[c].Load() }

// longestWaiting returns the loop where an attempt of class c has waited longest, or nil.
func (a *Admission) longestWaiting(c class) (longest *Admission) {
	since := int64(neverQueued)
	loops := a.service.Shared.loops
	for i := range loops {
		other := loops[i].Load()
		if other == nil {
			continue
		}
		if t := other.Admission.oldest(c); t < since {
			longest, since = &other.Admission, t
		}
	}
	return longest
}

// passSlot passes a slot that this loop holds to another loop, or to itself.
func (a *Admission) passSlot(to *Admission, c class) {
	if to == a {
		a.queue.granted[c]++
		a.service.Shard.Loop.Defer(&a.queue.grant)
		return
	}
	to.service.Shard.Loop.Post(to.queue.post[c])
}
