package link

import "sort"

// queue holds the encoded messages that have not left, in order. A dropped message stays as
// dead bytes until its turn, or until there are too many dead bytes, so that a drop does not
// move memory each time.
type queue struct {
	buf  []byte
	off  int       // start of segs[head] in buf
	segs []segment // segs[head:] are still unsent
	head int
	live int // segments that are not dead
	dead int // bytes of dead segments
	peak int // the largest len(buf) since buf was last empty; compact shortens buf, and keeps it here

	unsorted bool // segs[head:] is not in the order of ids
}

// segment is the frame of one message.
type segment struct {
	id   uint64
	end  int       // in buf; the segment starts at the end of the previous one
	long *outgoing // the message that continues in DATA frames, or nil
	dead bool
}

// findNearby is the number of segments that find searches in an unsorted queue. The peer of an
// acceptor decides how long that queue is, and how often find is called.
const findNearby = 64

const (
	keepBuffer  = 64 << 10       // capacity that an empty queue may keep
	keepInUse   = 4 * keepBuffer // the same if a quarter of it was needed, until Trim
	keepIdle    = 4 << 10        // capacity that Trim leaves
	compactOver = 4 << 10        // fewer wasted bytes stay
)

// push makes a segment of the bytes appended to buf since the last push.
func (q *queue) push(id uint64, long *outgoing) {
	if n := len(q.segs); n > q.head && id <= q.segs[n-1].id {
		q.unsorted = true
	}
	if long != nil {
		long.at = len(q.segs)
	}
	q.segs = append(q.segs, segment{id: id, end: len(q.buf), long: long})
	q.live++
}

func (q *queue) pending() int { return len(q.buf) - q.off - q.dead }

func (q *queue) start(i int) int {
	if i == q.head {
		return q.off
	}
	return q.segs[i-1].end
}

// find returns the index of the live segment of id, or -1. A dialer queues requests in the
// order of their ids, so the search is binary. An acceptor queues responses in any order; then
// find searches only the newest segments.
func (q *queue) find(id uint64) int {
	if q.unsorted {
		for i := len(q.segs) - 1; i >= max(q.head, len(q.segs)-findNearby); i-- {
			if q.segs[i].id == id && !q.segs[i].dead {
				return i
			}
		}
		return -1
	}
	unsent := q.segs[q.head:]
	i := sort.Search(len(unsent), func(i int) bool { return unsent[i].id >= id })
	if i < len(unsent) && unsent[i].id == id && !unsent[i].dead {
		return q.head + i
	}
	return -1
}

func (q *queue) kill(i int) {
	s := &q.segs[i]
	s.dead, s.long = true, nil
	q.live--
	q.dead += s.end - q.start(i)
	if q.live == 0 {
		q.clear()
	} else if waste := q.off + q.dead; waste > compactOver && waste > len(q.buf)/2 {
		q.compact()
	}
}

// take appends live segments to dst until it reaches limit, but at least one. It calls begun
// for the segments of long messages.
func (q *queue) take(dst []byte, limit int, begun func(*outgoing)) []byte {
	for first := true; q.live > 0 && (first || len(dst) < limit); {
		s := &q.segs[q.head]
		if s.dead {
			q.dead -= s.end - q.off
		} else {
			dst = append(dst, q.buf[q.off:s.end]...)
			q.live--
			first = false
			if s.long != nil {
				begun(s.long)
				s.long = nil
			}
		}
		q.off = s.end
		q.head++
	}
	if q.live == 0 {
		q.clear()
	} else if q.off > compactOver && q.off > len(q.buf)/2 {
		q.compact()
	}
	return dst
}

func (q *queue) clear() {
	most := max(q.peak, len(q.buf))
	if size := cap(q.buf); size > keepInUse || size > keepBuffer && most < size/4 {
		q.buf = nil
	}
	if cap(q.segs) > keepBuffer/32 {
		q.segs = nil
	}
	*q = queue{buf: q.buf[:0], segs: q.segs[:0]}
}

func (q *queue) trim() {
	if q.live == 0 && cap(q.buf) > keepIdle {
		q.buf, q.segs = nil, nil
	}
}

func (q *queue) compact() {
	q.peak = max(q.peak, len(q.buf))
	buf, segs, start := q.buf[:0], q.segs[:0], q.off
	for _, s := range q.segs[q.head:] {
		end := s.end
		if !s.dead {
			buf = append(buf, q.buf[start:end]...)
			s.end = len(buf)
			if s.long != nil {
				s.long.at = len(segs)
			}
			segs = append(segs, s)
		}
		start = end
	}
	clear(q.segs[len(segs):])
	q.buf, q.segs, q.off, q.head, q.dead = buf, segs, 0, 0, 0
}
