package otlp

import "github.com/remora-proxy/remora/proxy/telemetry/trace"

// queue is what waits to be exported, oldest first: a ring, so that neither end ever
// moves what is between.
type queue struct {
	ring  []*trace.Record
	first int // the place of the oldest
	n     int // how many wait
	room  int // how many may, up to len(ring); 0: nothing is taken
}

// resize makes room for so many, and for what waits already.
func (q *queue) resize(room int) {
	ring := make([]*trace.Record, max(room, q.n))
	n := q.take(ring)
	q.ring, q.first, q.n, q.room = ring, 0, n, room
}

// put tells whether there was room for r.
func (q *queue) put(r *trace.Record) bool {
	if q.n >= q.room {
		return false
	}
	q.ring[(q.first+q.n)%len(q.ring)] = r
	q.n++
	return true
}

// take moves the oldest into batch, as many as there are and it holds.
func (q *queue) take(batch []*trace.Record) (n int) {
	for ; n < len(batch) && q.n > 0; n++ {
		batch[n], q.ring[q.first] = q.ring[q.first], nil
		q.first = (q.first + 1) % len(q.ring)
		q.n--
	}
	return n
}
