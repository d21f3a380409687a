package lb

import (
	"container/heap"
	"time"
)

// Events runs functions in the order of their times, on virtual time. Functions of the
// same time run in the order in which they were added. The zero value begins at time 0.
type Events struct {
	Now time.Duration

	seq   int
	queue eventQueue
}

// After runs do when d has passed.
func (e *Events) After(d time.Duration, do func()) {
	e.seq++
	heap.Push(&e.queue, event{e.Now + d, e.seq, do})
}

// Len returns the number of pending functions.
func (e *Events) Len() int { return len(e.queue) }

// Next advances the time to the next function and runs that.
func (e *Events) Next() {
	next := heap.Pop(&e.queue).(event)
	e.Now = next.at
	next.do()
}

type event struct {
	at  time.Duration
	seq int
	do  func()
}

type eventQueue []event

func (q eventQueue) Len() int { return len(q) }
func (q eventQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *eventQueue) Push(x any)   { *q = append(*q, x.(event)) }
func (q *eventQueue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}
