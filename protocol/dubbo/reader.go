package dubbo

import (
	"math"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
)

const (
	// MaxEvent is the longest body of an event that is looked at.
	MaxEvent = 1 << 10
)

// FrameReader cuts what arrives on a Dubbo connection into frames. A body is
// copied once, into the buffer that it stays in.
type FrameReader struct {
	head   [HeaderSize]byte
	have   int // bytes of head
	Frame  Frame
	left   int                        // bytes of the body still to come, once head is there
	body   *bytebufferpool.ByteBuffer // nil: the body is skipped
	closed bool

	Buffers *protocol.Buffers
}

// FrameHandler is what a FrameReader reads for.
type FrameHandler interface {
	// OnHeader is called when a header is there; it tells whether the body, of
	// length bytes, is to be kept.
	OnHeader(f *Frame, length int) (keep bool)
	// OnFrame is called when the body is there too. It owns the buffer, nil if
	// the body was skipped.
	OnFrame(f *Frame, body *bytebufferpool.ByteBuffer)
}

// Midway tells whether part of a frame is here.
func (r *FrameReader) Midway() bool { return r.have > 0 }

// InHead tells whether part of a header is here, and no more.
func (r *FrameReader) InHead() bool { return r.have > 0 && r.have < len(r.head) }

// Held is how many bytes are held for the frame that is here in part.
func (r *FrameReader) Held() int { return r.have + protocol.Held(r.body) }

// Feed reads b, calling back. An error is for good.
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
			if end.OnHeader(&r.Frame, length) {
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

// Close drops what is here of a frame, and ends a feed that is calling back.
func (r *FrameReader) Close() {
	r.closed = true
	r.have = 0
	if r.body != nil {
		r.Buffers.Put(r.body)
		r.body = nil
	}
}
