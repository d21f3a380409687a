package dubbo

import (
	"math"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
)

// MaxEvent is the longest body of an event that a connection reads, in bytes.
const MaxEvent = 1 << 10

// FrameReader divides the input of a Dubbo connection into frames. It copies a body once, into
// the buffer where it stays.
type FrameReader struct {
	Frame   Frame             // being read; its header is valid from OnHeader on
	Buffers *protocol.Buffers // of bodies; set before Feed

	head   [HeaderSize]byte
	have   int                        // bytes in head
	left   int                        // bytes missing of the body, once head is complete
	body   *bytebufferpool.ByteBuffer // nil means that the body is skipped
	closed bool
}

// FrameHandler receives the frames of a FrameReader.
type FrameHandler interface {
	// OnHeader is called after a header; true keeps the body, which has length bytes.
	OnHeader(f *Frame, length int) (keep bool)
	// OnFrame is called after the body. It owns the buffer; nil means that it was skipped.
	OnFrame(f *Frame, body *bytebufferpool.ByteBuffer)
}

// Midway reports whether a frame is incomplete.
func (r *FrameReader) Midway() bool { return r.have > 0 }

// InHead reports whether a header is incomplete.
func (r *FrameReader) InHead() bool { return r.have > 0 && r.have < len(r.head) }

// Held is the number of bytes held for an incomplete frame.
func (r *FrameReader) Held() int { return r.have + protocol.Held(r.body) }

// Feed reads b and calls end for each header and frame. After an error the input is unusable.
func (r *FrameReader) Feed(b []byte, end FrameHandler) error {
	for len(b) > 0 && !r.closed {
		if r.have < len(r.head) {
			n := copy(r.head[r.have:], b)
			r.have += n
			b = b[n:]
			f, length, err := DecodeHeader(r.head[:r.have], math.MaxInt32)
			if err != nil {
				return err
			}
			if length < 0 {
				return nil
			}
			r.Frame, r.left = f, length
			keep := end.OnHeader(&r.Frame, length)
			if r.closed {
				return nil
			}
			if keep {
				r.body = r.Buffers.Get(0)
			}
		}
		n := min(r.left, len(b))
		if r.body != nil {
			r.Buffers.Append(r.body, b[:n], r.left+len(r.body.B))
		}
		b = b[n:]
		if r.left -= n; r.left == 0 {
			body := r.body
			r.body, r.have = nil, 0
			end.OnFrame(&r.Frame, body)
		}
	}
	return nil
}

// Close discards an incomplete frame. It ends a Feed from whose callback it is called.
func (r *FrameReader) Close() {
	r.closed = true
	r.have = 0
	if r.body != nil {
		r.Buffers.Put(r.body)
		r.body = nil
	}
}
