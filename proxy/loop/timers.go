package loop

import "time"

// Timers is the timer queue of a driver: a 4-ary heap of intrusive timers ordered by due time,
// then by order of arming. The core does not use it: it knows only Loop.
//
// Most timers are deadlines that do not expire. With every request such a timer is
// disarmed and armed again for a later time. If it is Pooled, that does not touch the heap:
// the timer keeps its position, which is corrected when the timer reaches the top. The heap
// holds at most maxDisarmed more disarmed timers than armed ones. Other timers leave it when
// they are disarmed, since it would keep a connection that has ended until its timer is due.
type Timers struct {
	heap  []*Timer
	seq   uint64
	armed int
}

const maxDisarmed = 64

// Arm makes t due at the absolute time at. A timer that is armed is armed anew.
func (q *Timers) Arm(t *Timer, at time.Duration) {
	q.seq++
	if !t.armed {
		t.armed = true
		q.armed++
	}
	t.at, t.seq = at, q.seq
	switch {
	case t.pos == 0:
		q.heap = append(q.heap, t)
		t.pos = len(q.heap)
	case at >= t.placedAt:
		return
	}
	t.placedAt, t.placedSeq = at, q.seq
	q.up(t.pos - 1)
}

// Disarm removes t if it is armed.
func (q *Timers) Disarm(t *Timer) {
	if !t.armed {
		return
	}
	t.armed = false
	q.armed--
	if !t.Pooled && t.pos > 0 {
		q.remove(t.pos - 1)
	}
	if len(q.heap) > 2*q.armed+maxDisarmed {
		q.sweep()
	}
}

func (q *Timers) sweep() {
	n := 0
	for _, t := range q.heap {
		if t.pos = 0; t.armed {
			q.heap[n] = t
			n++
			t.pos = n
		}
	}
	clear(q.heap[n:])
	q.heap = q.heap[:n]
	for i := (n - 2) / 4; i >= 0; i-- {
		q.down(i)
	}
}

// settleTop brings the earliest armed timer to the top.
func (q *Timers) settleTop() {
	for len(q.heap) > 0 {
		t := q.heap[0]
		switch {
		case !t.armed:
			q.remove(0)
		case t.placedSeq != t.seq:
			t.placedAt, t.placedSeq = t.at, t.seq
			q.down(0)
		default:
			return
		}
	}
}

func (q *Timers) remove(i int) {
	last := len(q.heap) - 1
	q.swap(i, last)
	q.heap[last].pos = 0
	q.heap[last] = nil
	q.heap = q.heap[:last]
	if i < last {
		q.up(i)
		q.down(i)
	}
}

// Next returns the time at which the earliest timer is due; ok is false if none is armed.
func (q *Timers) Next() (at time.Duration, ok bool) {
	if q.settleTop(); len(q.heap) == 0 {
		return 0, false
	}
	return q.heap[0].at, true
}

// Pop disarms and returns the earliest timer due at or before now, or nil. A
// driver that fires all due timers calls LastSeq first and passes the result as
// limit: a timer that arms itself again for now then waits for the next turn.
func (q *Timers) Pop(now time.Duration, limit uint64) *Timer {
	if q.settleTop(); len(q.heap) == 0 || q.heap[0].at > now || q.heap[0].seq > limit {
		return nil
	}
	t := q.heap[0]
	q.remove(0) // before Disarm, which may sweep
	q.Disarm(t)
	return t
}

// LastSeq returns the sequence number of the last Arm.
func (q *Timers) LastSeq() uint64 { return q.seq }

// Len returns the number of armed timers.
func (q *Timers) Len() int { return q.armed }

func (q *Timers) less(i, j int) bool {
	a, b := q.heap[i], q.heap[j]
	return a.placedAt < b.placedAt || a.placedAt == b.placedAt && a.placedSeq < b.placedSeq
}

func (q *Timers) swap(i, j int) {
	q.heap[i], q.heap[j] = q.heap[j], q.heap[i]
	q.heap[i].pos, q.heap[j].pos = i+1, j+1
}

func (q *Timers) up(i int) {
	for i > 0 {
		parent := (i - 1) / 4
		if !q.less(i, parent) {
			return
		}
		q.swap(i, parent)
		i = parent
	}
}

func (q *Timers) down(i int) {
	for {
		least := i
		for c := 4*i + 1; c <= 4*i+4 && c < len(q.heap); c++ {
			if q.less(c, least) {
				least = c
			}
		}
		if least == i {
			return
		}
		q.swap(i, least)
		i = least
	}
}

// Flushes is the queue of a driver for the end of a turn. The core does not use it.
type Flushes struct{ queue, spare []*Flush }

// Add queues f unless it is queued already.
func (q *Flushes) Add(f *Flush) {
	if !f.queued {
		f.queued = true
		q.queue = append(q.queue, f)
	}
}

// Empty reports whether nothing is queued.
func (q *Flushes) Empty() bool { return len(q.queue) == 0 }

// Take empties the queue and returns its flushes, each of which may be queued
// again. The slice is valid until the next Take.
func (q *Flushes) Take() []*Flush {
	taken := q.queue
	clear(q.spare) // the connections that own them may be closed
	q.queue, q.spare = q.spare[:0], taken
	for _, f := range taken {
		f.queued = false
	}
	return taken
}
