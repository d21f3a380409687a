package queues

import (
	"math"
	"time"
)

type eventKind uint8

const (
	arrives  eventKind = iota // a request at a consumer
	late                      // the hedge timer of a request
	reaches                   // an attempt at the replica's sidecar
	finishes                  // an attempt at the application
	returns                   // the response or refusal of an attempt at the consumer
	cancels                   // the news at the replica that nobody waits for an attempt
	ties                      // the question of the consumer when an attempt gets a worker
	started                   // the answer
)

// kinds is the bits of order that hold an eventKind.
const kinds = 3

// event is something that happens to an attempt, or to a request, which its first attempt stands
// for. It has no pointers, so that moving it costs the collector nothing.
type event struct {
	at      time.Duration
	order   uint64 // a serial number, which breaks ties, above an eventKind
	attempt uint32 // its number
}

func (e *event) kind() eventKind { return eventKind(e.order & (1<<kinds - 1)) }

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.order < o.order }

// events is what is still to happen.
type events struct {
	now     time.Duration
	serial  uint64
	arrival event   // of the next request; its order is 0 if there is none
	heap    []event // by time, with four children each
	sent    []event // those after the time of the network: they happen in the order of their sending
	passed  int     // how many of these are over
}

// never is later than all events.
const never = time.Duration(math.MaxInt64)

// event returns an event, for add. Of two events at one time, that of the first call comes first.
func (q *events) event(d time.Duration, kind eventKind, a *attempt) event {
	q.serial++
	e := event{at: q.now + d, order: q.serial<<kinds | uint64(kind)}
	if a != nil {
		e.attempt = a.number
	}
	return e
}

// arriveAfter has the next request arrive after a time. No other one is to arrive.
func (q *events) arriveAfter(d time.Duration) { q.arrival = q.event(d, arrives, nil) }

// send adds what happens after the time of the network.
func (q *events) send(kind eventKind, a *attempt) {
	if len(q.sent) == cap(q.sent) && q.passed > len(q.sent)/2 { // make room without growing
		q.sent, q.passed = q.sent[:copy(q.sent, q.sent[q.passed:])], 0
	}
	a.request.held++
	q.sent = append(q.sent, q.event(network, kind, a))
}

// after adds what happens to a after a time.
func (q *events) after(d time.Duration, kind eventKind, a *attempt) { q.add(q.event(d, kind, a), a) }

// add adds an event that happens to a.
func (q *events) add(e event, a *attempt) {
	a.request.held++
	q.heap = append(q.heap, e)
	i := len(q.heap) - 1
	for i > 0 {
		up := (i - 1) / 4
		if !e.before(&q.heap[up]) {
			break
		}
		q.heap[i] = q.heap[up]
		i = up
	}
	q.heap[i] = e
}

// next returns the next event. It reports whether there is one.
func (q *events) next() (e event, ok bool) {
	e.at = never
	if q.arrival.order > 0 {
		e = q.arrival
	}
	sent := q.passed < len(q.sent) && q.sent[q.passed].before(&e)
	if sent {
		e = q.sent[q.passed]
	}
	switch {
	case len(q.heap) > 0 && q.heap[0].before(&e):
		e = q.pop()
	case sent:
		q.passed++
	case e.at == never:
		return e, false
	default:
		q.arrival.order = 0
	}
	q.now = e.at
	return e, true
}

func (q *events) pop() event {
	n := len(q.heap) - 1
	first, last := q.heap[0], q.heap[n]
	q.heap = q.heap[:n]
	if n == 0 {
		return first
	}
	for i := 0; ; {
		least := 4*i + 1
		if least >= n {
			q.heap[i] = last
			return first
		}
		for child := least + 1; child < min(4*i+5, n); child++ {
			if q.heap[child].before(&q.heap[least]) {
				least = child
			}
		}
		if !q.heap[least].before(&last) {
			q.heap[i] = last
			return first
		}
		q.heap[i] = q.heap[least]
		i = least
	}
}
