package proxy

import "time"

// Timers is the timer store of a driver: a 4-ary heap of intrusive timers
// ordered by due time, then by order of arming. Not for use by the core, which
// sees only Loop.
type Timers struct {
	heap []*Timer
	seq  uint64
}

// Arm makes t due at the absolute time at, moving it if it is armed.
func (q *Timers) Arm(t *Timer, at time.Duration) {
	q.seq++
	t.at, t.seq = at, q.seq
	if t.pos == 0 {
		q.heap = append(q.heap, t)
		t.pos = len(q.heap)
		q.up(t.pos - 1)
		return
	}
	i := t.pos - 1
	if !q.up(i) {
		q.down(i)
	}
}

// Disarm removes t if it is armed.
func (q *Timers) Disarm(t *Timer) {
	if t.pos == 0 {
		return
	}
	i, last := t.pos-1, len(q.heap)-1
	q.swap(i, last)
	q.heap[last] = nil
	q.heap = q.heap[:last]
	t.pos = 0
	if i < last && !q.up(i) {
		q.down(i)
	}
}

// Next is when the earliest timer is due; ok is false when none is armed.
func (q *Timers) Next() (at time.Duration, ok bool) {
	if len(q.heap) == 0 {
		return 0, false
	}
	return q.heap[0].at, true
}

// Pop disarms and returns the earliest timer due at or before now, or nil. A
// driver that fires all that is due takes the newest sequence number first
// (Mark) and passes it as limit, so that a timer which re-arms itself for "now"
// waits for the next turn.
func (q *Timers) Pop(now time.Duration, limit uint64) *Timer {
	if len(q.heap) == 0 || q.heap[0].at > now || q.heap[0].seq > limit {
		return nil
	}
	t := q.heap[0]
	q.Disarm(t)
	return t
}

// Mark is the sequence number of the last Arm.
func (q *Timers) Mark() uint64 { return q.seq }

// Len is the number of armed timers.
func (q *Timers) Len() int { return len(q.heap) }

func (q *Timers) less(i, j int) bool {
	a, b := q.heap[i], q.heap[j]
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}

func (q *Timers) swap(i, j int) {
	q.heap[i], q.heap[j] = q.heap[j], q.heap[i]
	q.heap[i].pos, q.heap[j].pos = i+1, j+1
}

func (q *Timers) up(i int) (moved bool) {
	for i > 0 {
		parent := (i - 1) / 4
		if !q.less(i, parent) {
			break
		}
		q.swap(i, parent)
		i, moved = parent, true
	}
	return moved
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
	q.queue, q.spare = q.spare[:0], taken
	for _, f := range taken {
		f.queued = false
	}
	return taken
}
