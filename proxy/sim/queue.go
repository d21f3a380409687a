package sim

import "time"

// eventKind says what happens when an event is due.
type eventKind uint8

const (
	evArrive      eventKind = iota // bytes of c.end.out up to pos reach the peer's kernel
	evFin                          // c's end of stream, at pos, reaches the peer's kernel
	evReset                        // a reset reaches c
	evSyn                          // c's dial reaches the listener
	evOpen                         // the listener's acceptance reaches c
	evRefuse                       // the listener's refusal reaches c
	evDialTimeout                  // the timeout of c's dial
	evPump                         // c.end may send its next segment
	evLinger                       // the end of lingerTime of c
	evScript                       // f, from At
	evWake                         // a turn of l
)

// event is one entry of the clock's queue.
type event struct {
	at   time.Duration
	tie  uint64 // order among equal times: see clock.push
	kind eventKind
	c    *conn
	l    *Loop
	pos  int64
	f    func()
}

// queue is a 4-ary heap of events by (at, tie). It has values and not pointers, so that
// millions of events are no work for the garbage collector.
type queue []event

func (q queue) less(i, j int) bool {
	a, b := &q[i], &q[j]
	return a.at < b.at || a.at == b.at && a.tie < b.tie
}

func (q *queue) push(e event) {
	*q = append(*q, e)
	h := *q
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 4
		if !h.less(i, parent) {
			return
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
}

func (q *queue) pop() event {
	h := *q
	top, last := h[0], len(h)-1
	h[0] = h[last]
	h[last] = event{} // release its pointers
	h = h[:last]
	*q = h
	for i := 0; ; {
		least := i
		for c := 4*i + 1; c <= 4*i+4 && c < len(h); c++ {
			if h.less(c, least) {
				least = c
			}
		}
		if least == i {
			return top
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}
