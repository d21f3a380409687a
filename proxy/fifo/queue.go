// Package fifo has a queue whose elements bring their own memory, so that queueing allocates nothing.
package fifo

import "time"

// Queue is a FIFO of elements that each have a Node. The zero value is empty.
type Queue[T any] struct{ head, tail *Node[T] }

// Node is the place of one element in at most one Queue.
type Node[T any] struct {
	of         T
	next, prev *Node[T]
	since      time.Duration
	queue      *Queue[T]
}

// Queue returns the queue that the element waits in, or nil.
func (n *Node[T]) Queue() *Queue[T] { return n.queue }

// Since is when the element was queued.
func (n *Node[T]) Since() time.Duration { return n.since }

// Add puts an element at the end. n is its Node, which must be in no queue.
func (q *Queue[T]) Add(n *Node[T], of T, now time.Duration) { q.insert(n, of, nil, now) }

// AddSorted puts an element before the first one that isBehind reports to belong behind it.
func (q *Queue[T]) AddSorted(n *Node[T], of T, now time.Duration, isBehind func(T) bool) {
	var next *Node[T]
	if q.tail != nil && isBehind(q.tail.of) {
		for next = q.head; !isBehind(next.of); {
			next = next.next
		}
	}
	q.insert(n, of, next, now)
}

// insert puts an element before next or, if next is nil, at the end.
func (q *Queue[T]) insert(n *Node[T], of T, next *Node[T], now time.Duration) {
	prev := q.tail
	if next != nil {
		prev = next.prev
	}
	*n = Node[T]{of: of, next: next, prev: prev, since: now, queue: q}
	if prev == nil {
		q.head = n
	} else {
		prev.next = n
	}
	if next == nil {
		q.tail = n
	} else {
		next.prev = n
	}
}

// Empty reports whether no element waits.
func (q *Queue[T]) Empty() bool { return q.head == nil }

// Since is when the first element was queued. The queue must not be empty.
func (q *Queue[T]) Since() time.Duration { return q.head.since }

// First returns the first element, or the zero value if the queue is empty.
func (q *Queue[T]) First() (first T) {
	if q.head != nil {
		first = q.head.of
	}
	return first
}

// Pop removes the first element and returns it, or the zero value if the queue is empty.
func (q *Queue[T]) Pop() (first T) {
	if n := q.head; n != nil {
		first = n.of
		n.Remove()
	}
	return first
}

// Remove takes the element out of its queue, if it waits in one.
func (n *Node[T]) Remove() {
	q := n.queue
	if q == nil {
		return
	}
	if n.prev == nil {
		q.head = n.next
	} else {
		n.prev.next = n.next
	}
	if n.next == nil {
		q.tail = n.prev
	} else {
		n.next.prev = n.prev
	}
	*n = Node[T]{}
}
