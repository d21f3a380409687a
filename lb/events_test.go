package lb

import (
	"container/heap"
	"time"
)

// events is a queue of events on virtual time.
type events struct {
	now  time.Duration
	list []event
}

type event struct {
	at time.Duration
	do func(now time.Duration)
}

func (q *events) Len() int           { return len(q.list) }
func (q *events) Less(i, j int) bool { return q.list[i].at < q.list[j].at }
func (q *events) Swap(i, j int)      { q.list[i], q.list[j] = q.list[j], q.list[i] }
func (q *events) Push(x any)         { q.list = append(q.list, x.(event)) }
func (q *events) Pop() any {
	last := q.list[len(q.list)-1]
	q.list = q.list[:len(q.list)-1]
	return last
}

func (q *events) add(at time.Duration, do func(now time.Duration)) { heap.Push(q, event{at, do}) }

// end runs the next event.
func (q *events) end() {
	e := heap.Pop(q).(event)
	q.now = e.at
	e.do(q.now)
}
