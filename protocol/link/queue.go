package link

import (
	"math/bits"
	"sort"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
)

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

// outgoing is a message longer than one frame. Its first frame waits in the queue. The rest
// goes in DATA frames, when lanes pick it.
type outgoing struct {
	id    uint64
	head  *bytebufferpool.ByteBuffer // the part of the head that did not fit the first frame, or nil
	body  []byte                     // the rest of the body
	batch bool                       // it sends DATA after those that are not
	lane  int                        // once begun
	owner Owner
	held  int  // bytes that count as queued until the owner is released
	begun bool // the first frame has left
	at    int  // index of the first frame in the queue, until it has left

	prev, next *outgoing // in the lane, once begun
}

// left returns the number of bytes that DATA frames must still carry.
func (s *outgoing) left() int {
	if s.head != nil {
		return len(s.head.B) + len(s.body)
	}
	return len(s.body)
}

// memory returns the bytes of memory that the message holds.
func (s *outgoing) memory() int {
	if s.owner != nil {
		return s.owner.Buffered() + protocol.Held(s.head)
	}
	return s.held
}

// take takes the next n bytes: those of the head are appended to dst, and body is the rest.
func (s *outgoing) take(dst []byte, n int) (_, body []byte) {
	if s.head != nil {
		k := min(n, len(s.head.B))
		dst = append(dst, s.head.B[:k]...)
		s.head.B = s.head.B[:copy(s.head.B, s.head.B[k:])]
		if len(s.head.B) == 0 {
			bytebufferpool.Put(s.head)
			s.head = nil
		}
		n -= k
	}
	body, s.body = s.body[:n], s.body[n:]
	return dst, body
}

// release may be called only once.
func (s *outgoing) release() {
	if s.head != nil {
		bytebufferpool.Put(s.head)
	}
	if s.owner != nil {
		s.owner.Release()
	}
	*s = outgoing{}
}

// lanes holds the long messages that send DATA, by length. The oldest message of the shortest lane sends
// until its end. If all sent in turn, the peer would long have each of them in part: more memory than its
// caches have room for, and it would fetch each byte from there twice.
type lanes struct {
	oldest [laneCount]*outgoing // the oldest message of each lane; from there the messages form a ring, in the order of add
	n      int                  // messages
	frames int                  // picked
	turn   int                  // the lane of the last frame that another lane gave way to
}

const (
	laneCount = 6
	shortLane = 64 << 10 // of the longest message in lane 0, in bytes; messages of each further lane are up to four times as long

	// One frame in laneFrames is of another lane than the shortest, each in its turn. So no message
	// waits forever.
	laneFrames = 8
)

// laneOf returns the lane of a message with n bytes to send.
func laneOf(n int) int { return min((bits.Len(uint(n-1)/shortLane)+1)/2, laneCount-1) }

// pick returns the message that sends the next frame. There must be one.
func (l *lanes) pick() *outgoing {
	lane := l.after(-1)
	if l.frames++; l.frames%laneFrames == 0 {
		if l.turn = l.after(l.turn); l.turn == lane {
			l.turn = l.after(lane)
		}
		lane = l.turn
	}
	return l.oldest[lane]
}

// after returns the next lane after i that has a message, in a circle.
func (l *lanes) after(i int) int {
	for i = (i + 1) % laneCount; l.oldest[i] == nil; i = (i + 1) % laneCount {
	}
	return i
}

func (l *lanes) add(s *outgoing) {
	l.n++
	s.lane = laneOf(s.left())
	oldest := l.oldest[s.lane]
	if oldest == nil {
		s.prev, s.next = s, s
		l.oldest[s.lane] = s
		return
	}
	s.prev, s.next = oldest.prev, oldest
	s.prev.next, s.next.prev = s, s
}

func (l *lanes) remove(s *outgoing) {
	l.n--
	if s.next == s {
		l.oldest[s.lane] = nil
	} else {
		s.prev.next, s.next.prev = s.next, s.prev
		if l.oldest[s.lane] == s {
			l.oldest[s.lane] = s.next
		}
	}
	s.prev, s.next = nil, nil
}
