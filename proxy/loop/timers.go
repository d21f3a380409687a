package loop

import "time"

// Timers is the timer store of a driver: a 4-ary heap of intrusive timers
// ordered by due time, then by order of arming. Not for use by the core, which
// sees only Loop.
//
// Most timers are deadlines that nothing reaches: each is disarmed, and armed again
// for a later time, with every request. So that does not touch the heap: a timer
// stays where it was, and its place is looked at when it comes to the top. There are
// at most maxIdle more disarmed ones in the heap than armed ones.
type Timers struct {
	heap  []*Timer
	seq   uint64
	armed int
}

const maxIdle = 64

// Arm makes t due at the absolute time at, moving it if it is armed.
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
	if len(q.heap) > 2*q.armed+maxIdle {
		q.sweep()
	}
}

// sweep takes the disarmed timers out of the heap.
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

// tidy has the earliest timer on top.
func (q *Timers) tidy() {
	for len(q.heap) > 0 {
		t := q.heap[0]
		switch {
		case !t.armed:
			q.remove()
		case t.placedSeq != t.seq:
			t.placedAt, t.placedSeq = t.at, t.seq
			q.down(0)
		default:
			return
		}
	}
}

// remove takes the top out of the heap.
func (q *Timers) remove() {
	last := len(q.heap) - 1
	q.heap[0].pos = 0
	if last > 0 {
		q.heap[0] = q.heap[last]
		q.heap[0].pos = 1
	}
	q.heap[last] = nil
	q.heap = q.heap[:last]
	q.down(0)
}

// Next is when the earliest timer is due; ok is false when none is armed.
func (q *Timers) Next() (at time.Duration, ok bool) {
	if q.tidy(); len(q.heap) == 0 {
		return 0, false
	}
	return q.heap[0].at, true
}

// Pop disarms and returns the earliest timer due at or before now, or nil. A
// driver that fires all that is due takes the newest sequence number first
// (Mark) and passes it as limit, so that a timer which re-arms itself for "now"
// waits for the next turn.
func (q *Timers) Pop(now time.Duration, limit uint64) *Timer {
	if q.tidy(); len(q.heap) == 0 || q.heap[0].at > now || q.heap[0].seq > limit {
		return nil
	}
	t := q.heap[0]
	q.remove() // before Disarm, which may sweep
	q.Disarm(t)
	return t
}

// Mark is the sequence number of the last Arm.
func (q *Timers) Mark() uint64 { return q.seq }

// Len is the number of armed timers.
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

// Flushes is the end-of-turn queue of a driver. Not for use by the core.
type Flushes struct{ queue, spare []*Flush }

// Add queues f unless it is queued already.
func (q *Flushes) Add(f *Flush) {
	if !f.queued {
		f.queued = true
		q.queue = append(q.queue, f)
	}
}

// Empty tells whether nothing is queued.
func (q *Flushes) Empty() bool { return len(q.queue) == 0 }

// Take empties the queue and returns what was in it, each ready to be queued
// anew. The slice is valid until the next Take.
func (q *Flushes) Take() []*Flush {
	taken := q.queue
	clear(q.spare) // the connections that they are of may be gone
	q.queue, q.spare = q.spare[:0], taken
	for _, f := range taken {
		f.queued = false
	}
	return taken
}
