package queues

import "time"

type eventKind uint8

const (
	arrives  eventKind = iota // a request at a consumer
	late                      // the hedge timer of a request
	reaches                   // an attempt at the replica's sidecar
	finishes                  // an attempt at the application
	returns                   // the response or refusal of an attempt at the consumer
	cancels                   // the news at the replica that nobody waits for an attempt
)

// event is something that happens to a request, or to one of its attempts.
type event struct {
	at      time.Duration
	serial  uint64 // breaks ties
	kind    eventKind
	request *request
	attempt *attempt
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.serial < o.serial }

// events is a heap of events by time.
type events struct {
	now    time.Duration
	serial uint64
	heap   []event
}

func (q *events) after(d time.Duration, kind eventKind, r *request, a *attempt) {
	q.serial++
	q.heap = append(q.heap, event{q.now + d, q.serial, kind, r, a})
	for i := len(q.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !q.heap[i].before(&q.heap[up]) {
			break
		}
		q.heap[i], q.heap[up] = q.heap[up], q.heap[i]
		i = up
	}
}

func (q *events) next() event {
	first, n := q.heap[0], len(q.heap)-1
	q.heap[0] = q.heap[n]
	q.heap = q.heap[:n]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < n; child++ {
			if q.heap[child].before(&q.heap[least]) {
				least = child
			}
		}
		if least == i {
			break
		}
		q.heap[i], q.heap[least] = q.heap[least], q.heap[i]
		i = least
	}
	q.now = first.at
	return first
}
