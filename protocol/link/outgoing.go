package link

import "github.com/valyala/bytebufferpool"

// outgoing is a message that is longer than a frame. Its first frame waits in the
// queue; the rest goes in DATA frames, in turn with other long messages.
type outgoing struct {
	id    uint64
	head  *bytebufferpool.ByteBuffer // what of the head did not fit the first frame, or nil
	body  []byte                     // what is left of the body
	owner Owner
	held  int  // bytes that count as queued until the owner is released
	begun bool // the first frame has left
	at    int  // before that: where it is in the queue

	prev, next *outgoing // in the ring, once begun
}

// left is the count of bytes to be sent in DATA frames.
func (s *outgoing) left() int {
	if s.head != nil {
		return len(s.head.B) + len(s.body)
	}
	return len(s.body)
}

// appendChunk appends the next n bytes of the message.
func (s *outgoing) appendChunk(dst []byte, n int) []byte {
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
	dst = append(dst, s.body[:n]...)
	s.body = s.body[n:]
	return dst
}

// release gives back what the message holds. It may be called once.
func (s *outgoing) release() {
	if s.head != nil {
		bytebufferpool.Put(s.head)
	}
	if s.owner != nil {
		s.owner.Release()
	}
	*s = outgoing{}
}

// ring holds the long messages whose turn to send DATA comes round.
type ring struct {
	next *outgoing // whose turn it is
	n    int
}

// add puts s at the end of the round.
func (r *ring) add(s *outgoing) {
	r.n++
	if r.next == nil {
		s.prev, s.next = s, s
		r.next = s
		return
	}
	s.prev, s.next = r.next.prev, r.next
	s.prev.next, s.next.prev = s, s
}

// remove takes s out of the round.
func (r *ring) remove(s *outgoing) {
	r.n--
	if s.next == s {
		r.next = nil
	} else {
		s.prev.next, s.next.prev = s.next, s.prev
		if r.next == s {
			r.next = s.next
		}
	}
	s.prev, s.next = nil, nil
}
