package proxy

import (
	"errors"
	"math"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/dubbo"
)

const (
	// dubboEvent is the longest body of an event that is looked at.
	dubboEvent = 1 << 10

	// dubboBeat is how often a connection to a provider looks whether its peer is
	// alive: after one beat of silence it asks, after two it gives up.
	dubboBeat = 15 * time.Second
)

// dubboCodec is the tag of messages with this serialization id.
func dubboCodec(serialization byte) (c protocol.Codec, known bool) {
	switch serialization {
	case dubbo.Fastjson:
		return protocol.CodecDubboFastjson, true
	case dubbo.Hessian2:
		return protocol.CodecDubboHessian2, true
	}
	return 0, false
}

// serializationOf is the serialization id of messages with the tag c.
func serializationOf(c protocol.Codec) byte {
	if c == protocol.CodecDubboFastjson {
		return dubbo.Fastjson
	}
	return dubbo.Hessian2
}

// callFailure turns a refusal of the codec's into the answer to the caller.
func callFailure(err error) *Failure {
	var refused *dubbo.Error
	if !errors.As(err, &refused) {
		return FailBadRequest
	}
	return &Failure{Code: refused.Code, Status: refused.Status, Text: refused.Text}
}

// dubboReader cuts what arrives on a Dubbo connection into frames. A body is
// copied once, into the buffer that it stays in.
type dubboReader struct {
	head   [dubbo.HeaderSize]byte
	have   int // bytes of head
	frame  dubbo.Frame
	left   int                        // bytes of the body still to come, once head is there
	body   *bytebufferpool.ByteBuffer // nil: the body is skipped
	closed bool

	buffers *protocol.Buffers
}

// dubboEnd is what a dubboReader reads for.
type dubboEnd interface {
	// onHeader is called when a header is there; it tells whether the body, of
	// length bytes, is to be kept.
	onHeader(f *dubbo.Frame, length int) (keep bool)
	// onFrame is called when the body is there too. It owns the buffer, nil if
	// the body was skipped.
	onFrame(f *dubbo.Frame, body *bytebufferpool.ByteBuffer)
}

// midway tells whether part of a frame is here.
func (r *dubboReader) midway() bool { return r.have > 0 }

// inHead tells whether part of a header is here, and no more.
func (r *dubboReader) inHead() bool { return r.have > 0 && r.have < len(r.head) }

// held is how many bytes are held for the frame that is here in part.
func (r *dubboReader) held() int { return r.have + protocol.Held(r.body) }

// feed reads b, calling back. An error is for good.
func (r *dubboReader) feed(b []byte, end dubboEnd) error {
	for len(b) > 0 && !r.closed {
		if r.have < len(r.head) {
			n := copy(r.head[r.have:], b)
			r.have += n
			b = b[n:]
			f, length, err := dubbo.DecodeHeader(r.head[:r.have], math.MaxInt32)
			if err != nil {
				return err
			}
			if length < 0 {
				return nil
			}
			r.frame, r.left = f, length
			if end.onHeader(&r.frame, length) {
				r.body = r.buffers.Get(0)
			}
		}
		n := min(r.left, len(b))
		if r.body != nil {
			r.buffers.Append(r.body, b[:n], r.left+len(r.body.B))
		}
		b = b[n:]
		if r.left -= n; r.left == 0 {
			body := r.body
			r.body, r.have = nil, 0
			end.onFrame(&r.frame, body)
		}
	}
	return nil
}

// close drops what is here of a frame, and ends a feed that is calling back.
func (r *dubboReader) close() {
	r.closed = true
	r.have = 0
	if r.body != nil {
		r.buffers.Put(r.body)
		r.body = nil
	}
}
