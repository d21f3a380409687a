package link

import (
	"slices"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/valyala/bytebufferpool"
)

// incoming is a message in reassembly.
type incoming struct {
	id    uint64
	typ   frameType
	total int                        // length of the whole message
	buf   *bytebufferpool.ByteBuffer // the part that has arrived
	seen  time.Duration              // when Expire first saw it; 0 means not yet
}

func (r *Reader) add(s *incoming, b []byte) {
	before := protocol.Held(s.buf)
	r.limits.Buffers.Append(s.buf, b, s.total+traceText)
	r.held += protocol.Held(s.buf) - before
}

func (r *Reader) admit(t frameType, id uint64, total int, first []byte) {
	var s *incoming
	if n := len(r.free); n > 0 {
		s = r.free[n-1]
		r.free = r.free[:n-1]
	} else {
		s = &incoming{}
	}
	*s = incoming{id: id, typ: t, total: total, buf: r.limits.Buffers.Get(0)}
	r.add(s, first)
	if r.assembling == nil {
		r.assembling = make(map[uint64]*incoming)
	}
	r.assembling[id] = s
}

func (r *Reader) discard(s *incoming) {
	r.limits.Buffers.Put(r.detach(s))
}

func (r *Reader) detach(s *incoming) *bytebufferpool.ByteBuffer {
	buf := s.buf
	delete(r.assembling, s.id)
	r.held -= protocol.Held(buf)
	if r.sink == s {
		r.sink = nil // the rest of its frame is skipped
	}
	*s = incoming{}
	if len(r.free) < maxFree {
		r.free = append(r.free, s)
	}
	return buf
}

// beginData handles the header of a DATA frame. DATA for a message that is not in reassembly
// was in flight when that message ended, and is skipped.
func (r *Reader) beginData(f header) error {
	if f.id == 0 {
		return ErrStreamID
	}
	if f.flags&flagAbort != 0 && f.length == 0 {
		r.Forget(f.id)
		return nil
	}
	if f.length == 0 {
		return ErrPayload
	}
	if uint32(f.length) > r.window {
		return ErrFlowControl
	}
	s := r.assembling[f.id]
	if s != nil && f.length > s.total-len(s.buf.B) {
		return ErrOverrun
	}
	r.window -= uint32(f.length)
	r.consumed += uint32(f.length) // the whole frame: the rest of it will follow
	r.left, r.sink = f.length, s
	return nil
}

// payload consumes the part of a streamed frame's payload that b holds.
func (r *Reader) payload(b []byte, h Handler) []byte {
	n := min(len(b), r.left)
	if r.left -= n; r.left == 0 {
		r.moved++
	}
	if s := r.sink; s != nil {
		r.add(s, b[:n])
		if r.left == 0 {
			r.sink = nil
		}
		if len(s.buf.B) == s.total {
			t, id := s.typ, s.id
			r.err = r.deliver(t, id, r.detach(s), h)
		}
	}
	return b[n:]
}

// Midway reports whether a frame or a message has arrived in part. If so, Expire must be
// called from time to time.
func (r *Reader) Midway() bool { return r.held > 0 || r.partial != nil || r.left > 0 }

// Expire ends what is incomplete for longer than age, measured from the first call of Expire
// that saw it. A message is rejected (Handler.OnReject with DeadlinePassed), and the rest of
// it is skipped. An incomplete frame or preface is an error: close the link. now may be any
// monotonic clock, and must not be 0.
func (r *Reader) Expire(now, age time.Duration, h Handler) error {
	if r.err != nil || r.state == readClosed {
		return r.err
	}
	switch inFrame := r.partial != nil || r.left > 0; {
	case !inFrame:
		r.since = 0
	case r.since == 0 || r.moved != r.stalled:
		r.stalled, r.since = r.moved, now
	case now-r.since >= age:
		r.err = ErrSlow
		return r.err
	}
	var late []uint64
	for id, s := range r.assembling {
		if s.seen == 0 {
			s.seen = now
		} else if now-s.seen >= age {
			late = append(late, id)
		}
	}
	slices.Sort(late)
	for _, id := range late {
		r.Forget(id)
		h.OnReject(id, DeadlinePassed)
	}
	return nil
}
