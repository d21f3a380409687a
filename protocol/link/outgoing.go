package link

import (
	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
)

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
