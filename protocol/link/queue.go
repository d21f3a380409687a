package link

// queue holds encoded messages that have not left, in order. A message that is
// dropped stays as dead bytes until its turn or until there are too many of
// those, so that dropping does not move memory each time.
type queue struct {
	buf  []byte
	off  int       // start of segs[head] in buf
	segs []segment // segs[head:] are to be sent
	head int
	live int // segments not dead
	dead int // bytes of dead segments
	most int // the longest that buf was when compact moved it, since it was last empty

	unsorted bool // segs[head:] is not in order of ids
}

// segment is the frame of one message.
type segment struct {
	id   uint64
	end  int       // in buf; it starts where the one before ends
	long *outgoing // the message that goes on in DATA frames, or nil
	dead bool
}

// findNearby is how many segments find looks at in a queue without order. An
// acceptor's peer decides how many pile up there, and how often one is looked for.
const findNearby = 64

const (
	keepBuffer  = 64 << 10       // an empty queue keeps no more than this,
	keepInUse   = 4 * keepBuffer // or until it is trimmed, if a quarter of it was needed
	compactOver = 4 << 10        // fewer wasted bytes are left alone
)

// push makes what was appended to buf since the last push a segment.
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

// pending is the count of bytes to be sent.
func (q *queue) pending() int { return len(q.buf) - q.off - q.dead }

func (q *queue) start(i int) int {
	if i == q.head {
		return q.off
	}
	return q.segs[i-1].end
}

// find returns the index of the live segment of id, or -1. Requests are queued in
// the order of their ids, so on a dialer's side this is a binary search. Answers are
// queued as they come; of those that are out of order only the newest are looked at.
func (q *queue) find(id uint64) int {
	if q.unsorted {
		for i := len(q.segs) - 1; i >= max(q.head, len(q.segs)-findNearby); i-- {
			if q.segs[i].id == id && !q.segs[i].dead {
				return i
			}
		}
		return -1
	}
	lo, hi := q.head, len(q.segs)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); q.segs[mid].id < id {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(q.segs) && q.segs[lo].id == id && !q.segs[lo].dead {
		return lo
	}
	return -1
}

// kill drops segment i.
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

// take appends live segments to dst until it reaches limit, at least one, and
// hands those of long messages to begun.
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
	most := max(q.most, len(q.buf))
	if size := cap(q.buf); size > keepInUse || size > keepBuffer && most < size/4 {
		q.buf = nil
	}
	if cap(q.segs) > keepBuffer/32 {
		q.segs = nil
	}
	*q = queue{buf: q.buf[:0], segs: q.segs[:0]}
}

// trim gives up what an empty queue keeps beyond keepBuffer.
func (q *queue) trim() {
	if q.live == 0 && cap(q.buf) > keepBuffer {
		q.buf = nil
	}
}

// compact moves the live segments to the front.
func (q *queue) compact() {
	q.most = max(q.most, len(q.buf))
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
