package otlp

import "github.com/remora-proxy/remora/proxy/telemetry/trace"

// queue holds the records to export, oldest first. It is a ring.
type queue struct {
	ring  []*trace.Record
	first int // index of the oldest
	n     int // number of records
	room  int // highest number for put, at most len(ring); 0 means that put refuses all
}

// resize changes the room. The queue keeps all records, even if they are more.
func (q *queue) resize(room int) {
	ring := make([]*trace.Record, max(room, q.n))
	n := q.take(ring)
	q.ring, q.first, q.n, q.room = ring, 0, n, room
}

func (q *queue) put(r *trace.Record) bool {
	if q.n >= q.room {
		return false
	}
	q.ring[(q.first+q.n)%len(q.ring)] = r
	q.n++
	return true
}

// take moves the oldest records into batch, up to its length, and returns their number.
func (q *queue) take(batch []*trace.Record) (n int) {
	for ; n < len(batch) && q.n > 0; n++ {
		batch[n], q.ring[q.first] = q.ring[q.first], nil
		q.first = (q.first + 1) % len(q.ring)
		q.n--
	}
	return n
}
