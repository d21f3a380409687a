package stream

import (
	"io"
	"sync"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy"
)

// piece is how many bytes of a body are read and passed on at once; block has
// room for them as a chunk. Decoding takes another piece, so a direction that is
// not spliced holds little more than 64 KiB.
const (
	piece     = 32 << 10
	blockSize = piece + 16
	decoding  = blockSize + piece // held by a transfer
)

var blocks = sync.Pool{New: func() any { return new([blockSize]byte) }}

// buffers are nobody's: a large one that a loop has given up is not kept.
var buffers *protocol.Buffers

// transfer passes a body on from one end to another as it comes.
type transfer struct {
	proc     *proxy.Process // which counts what is held
	from, to *end
	body     *http1.Body
	held     *bytebufferpool.ByteBuffer // what body decodes into
	rest     []byte                     // what came behind that
	chunks   bool                       // the body goes on in chunks, else as it is
	sent     int64                      // bytes of the body that were passed on
}

// bodyFault is why a transfer ended before the body did.
type bodyFault uint8

const (
	noFault   bodyFault = iota
	fromFault           // its source was lost, or ended too early
	malformed           // by its source
	toFault             // whom it goes to is gone
)

// run ends when the whole body has been passed on, and its end with it. The
// transfer's buffers are given up.
func (t *transfer) run() bodyFault {
	early := protocol.Held(t.held) + cap(t.rest)
	t.proc.Hold(early + decoding)
	defer t.proc.Hold(-decoding)
	block := blocks.Get().(*[blockSize]byte)
	defer blocks.Put(block)
	defer func() { buffers.Put(t.held) }()
	f := t.early(block[:])
	t.rest = nil
	t.proc.Hold(-early)
	for f == noFault && !t.body.Done() {
		if n := t.body.Verbatim(); n > 0 && !t.chunks {
			f = t.verbatim(n, block[:])
		} else {
			f = t.next(block[:])
		}
	}
	if f == noFault && t.chunks {
		f = t.write(http1.AppendLastChunk(block[:0], t.body.Trailers(t.held, nil)))
	}
	return f
}

// early passes on what is here already.
func (t *transfer) early(block []byte) bodyFault {
	if f := t.pass(block); f != noFault {
		return f
	}
	if len(t.held.B) == 0 { // a large one may have come along
		buffers.Put(t.held)
		t.held = buffers.Get(0)
	}
	for rest := t.rest; len(rest) > 0 && !t.body.Done(); {
		n, f := t.decode(rest[:min(len(rest), piece)], block)
		if f != noFault {
			return f
		}
		rest = rest[n:]
	}
	return noFault
}

// next passes on what the source has sent meanwhile.
func (t *transfer) next(block []byte) bodyFault {
	n, err := t.from.Read(block[:piece])
	if n > 0 {
		_, f := t.decode(block[:n], block)
		return f
	}
	if err == io.EOF && t.body.Close() == nil {
		return noFault
	}
	if err != nil {
		return fromFault
	}
	return noFault
}

// decode passes on the part of the body that in has. in may be of block: it is
// read before that is written.
func (t *transfer) decode(in, block []byte) (int, bodyFault) {
	n, _, err := t.body.Decode(in, t.held)
	if err != nil {
		return n, malformed
	}
	return n, t.pass(block)
}

// pass writes what was decoded.
func (t *transfer) pass(block []byte) bodyFault {
	for b := t.held.B[:t.body.Length()]; len(b) > 0; {
		part, out := b, b
		if t.chunks {
			part = b[:min(len(b), piece)]
			out = http1.AppendChunk(block[:0], part)
		}
		if f := t.write(out); f != noFault {
			return f
		}
		t.sent += int64(len(part))
		b = b[len(part):]
	}
	t.body.Discard(t.held)
	return noFault
}

func (t *transfer) write(b []byte) bodyFault {
	if _, err := t.to.Write(b); err != nil {
		return toFault
	}
	return noFault
}

// verbatim passes on n bytes that need no decoding, within the kernel if none of
// the ends is encrypted.
func (t *transfer) verbatim(n int64, block []byte) bodyFault {
	moved, err := copyN(t.to, t.from, n, block)
	t.body.Skip(moved)
	t.sent += moved
	switch {
	case err == nil && moved == n:
		return noFault
	case err == nil:
		if t.body.Close() != nil {
			return fromFault
		}
		return noFault
	case t.from.dead():
		return fromFault
	}
	return toFault
}

// copyN copies n bytes, or up to an end of file, which is no error.
func copyN(to, from *end, n int64, block []byte) (int64, error) {
	src := &io.LimitedReader{R: from.tcp, N: n}
	if !to.secure && !from.secure {
		return to.tcp.ReadFrom(src)
	}
	src.R = from.conn
	return io.CopyBuffer(struct{ io.Writer }{to.conn}, src, block)
}
