package stream

import (
	"io"
	"sync"
	"sync/atomic"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy"
)

// A body is passed on in pieces. A direction that is not spliced holds little over 64 KiB.
const (
	pieceSize    = 32 << 10
	blockSize    = pieceSize + 16        // room for a piece as a chunk
	transferSize = blockSize + pieceSize // memory of a transfer: a block, and a decoded pieceSize
)

var blocks = sync.Pool{New: func() any { return new([blockSize]byte) }}

var buffers = protocol.Unowned()

// transfer passes a body from one end to another while it arrives. It owns decoded and rest.
type transfer struct {
	proc     *proxy.Process // counts the memory held
	from, to *end
	body     *http1.Body
	decoded  *bytebufferpool.ByteBuffer                // output of body; may have bytes already
	rest     []byte                                    // bytes read behind those, not decoded
	chunks   bool                                      // the body is sent in chunks; if false, without framing
	sent     int64                                     // bytes of the body that were passed on
	trailers func([]protocol.Header) []protocol.Header // returns those that are passed on; nil means without our own
	call     *call                                     // learns the trailers; nil means that they are only passed on
	replay   *replay                                   // of a request, writes to the destination; nil means to
	begun    func()                                    // called at the first byte of the body; nil means not
	ending   *atomic.Bool                              // set before the last chunk is sent, whose receiver may be faster than run; nil means nothing
}

// bodyFault says why a transfer ended before its body.
type bodyFault uint8

const (
	noFault   bodyFault = iota
	fromFault           // the source failed, or ended too early
	malformed           // the source broke the framing
	toFault             // the destination failed
)

// run returns when the whole body and its end have been passed on, or at the first fault. It
// releases the transfer's buffers.
func (t *transfer) run() bodyFault {
	early := protocol.Held(t.decoded) + cap(t.rest)
	t.proc.Charge(early + transferSize)
	defer func() { t.proc.Charge(-early - transferSize) }()
	block := blocks.Get().(*[blockSize]byte)
	defer blocks.Put(block)
	defer func() { buffers.Put(t.decoded) }()
	f := t.passEarly(block[:])
	t.rest = nil
	t.proc.Charge(-early)
	early = 0
	for f == noFault && !t.body.Done() {
		if n := t.body.Verbatim(); n > 0 && t.begun == nil && !t.chunks && t.settled() {
			f = t.passVerbatim(n, block[:])
		} else {
			f = t.passNext(block[:])
		}
	}
	if f == noFault && t.call != nil {
		t.call.onTrailers(t.body.Trailers(t.decoded, nil))
	}
	if f == noFault && t.chunks {
		if t.ending != nil {
			t.ending.Store(true)
		}
		f = t.write(http1.AppendLastChunk(block[:0], t.keptTrailers()))
	}
	return f
}

func (t *transfer) keptTrailers() []protocol.Header {
	hs := t.body.Trailers(t.decoded, nil)
	if t.trailers != nil {
		return t.trailers(hs)
	}
	return protocol.WithoutOwn(hs)
}

func (t *transfer) passEarly(block []byte) bodyFault {
	if f := t.writeDecoded(block); f != noFault {
		return f
	}
	if len(t.decoded.B) == 0 { // the buffer may be large
		buffers.Put(t.decoded)
		t.decoded = buffers.Get(0)
	}
	for rest := t.rest; len(rest) > 0 && !t.body.Done(); {
		n, f := t.decode(rest[:min(len(rest), pieceSize)], block)
		if f != noFault {
			return f
		}
		rest = rest[n:]
	}
	return noFault
}

func (t *transfer) passNext(block []byte) bodyFault {
	n, err := t.from.Read(block[:pieceSize])
	switch {
	case n > 0:
		_, f := t.decode(block[:n], block)
		return f
	case err != nil && (err != io.EOF || t.body.Close() != nil):
		return fromFault
	}
	return noFault
}

// decode passes on the part of the body that is in in, and returns how many bytes of in it
// used. in may be a part of block: it is read before block is written.
func (t *transfer) decode(in, block []byte) (int, bodyFault) {
	n, _, err := t.body.Decode(in, t.decoded)
	if err != nil {
		return n, malformed
	}
	return n, t.writeDecoded(block)
}

func (t *transfer) writeDecoded(block []byte) bodyFault {
	if t.begun != nil && t.body.Length() > 0 {
		t.begun()
		t.begun = nil
	}
	for b := t.decoded.B[:t.body.Length()]; len(b) > 0; {
		part, out := b, b
		if t.chunks {
			part = b[:min(len(b), pieceSize)]
			out = http1.AppendChunk(block[:0], part)
		}
		if f := t.write(out); f != noFault {
			return f
		}
		t.sent += int64(len(part))
		b = b[len(part):]
	}
	t.body.Discard(t.decoded)
	return noFault
}

func (t *transfer) write(b []byte) bodyFault {
	var err error
	if t.replay != nil {
		err = t.replay.write(b)
	} else {
		_, err = t.to.Write(b)
	}
	if err != nil {
		return toFault
	}
	return noFault
}

// settled reports whether the destination stays the one in to. Until then nothing may pass it by.
func (t *transfer) settled() bool {
	if t.replay == nil {
		return true
	}
	to, settled := t.replay.destination()
	t.to = to
	return settled
}

// passVerbatim passes on n bytes that need no decoding. They stay within the kernel if neither
// end is encrypted.
func (t *transfer) passVerbatim(n int64, block []byte) bodyFault {
	moved, err := copyN(t.to, t.from, n, block)
	t.body.Skip(moved)
	t.sent += moved
	switch {
	case err != nil && !t.from.isReset():
		return toFault
	case err != nil, moved < n && t.body.Close() != nil:
		return fromFault
	}
	return noFault
}

// copyN copies n bytes. An earlier end of file is no error.
func copyN(to, from *end, n int64, block []byte) (int64, error) {
	src := &io.LimitedReader{R: from.conn, N: n}
	if !to.buffered() && !from.buffered() {
		src.R = from.tcp
		return to.tcp.ReadFrom(src)
	}
	return io.CopyBuffer(struct{ io.Writer }{to.conn}, src, block)
}
