package link

import (
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
)

// partial is the start of the preface, or of a frame that is needed as a whole.
type partial struct {
	buf  *bytebufferpool.ByteBuffer // nil if nothing has arrived
	need int                        // the length of the whole, or 0 while the header is incomplete
}

func (p *partial) save(b []byte, from *protocol.Buffers) {
	if p.buf == nil {
		p.buf = from.Get(0)
	}
	from.Append(p.buf, b, p.need)
}

// missing returns how many bytes the next save may take: all that are missing, or a single byte while the length is not
// known.
func (p *partial) missing() int {
	if p.need == 0 {
		return 1
	}
	return p.need - len(p.buf.B)
}

// take returns the buffer, which the caller owns, and is empty then.
func (p *partial) take() *bytebufferpool.ByteBuffer {
	buf := p.buf
	*p = partial{}
	return buf
}

func (p *partial) drop(to *protocol.Buffers) {
	if p.buf != nil {
		to.Put(p.buf)
	}
	*p = partial{}
}

// progress finds the frame that takes too long.
type progress struct {
	frames uint64 // completed so far

	// When tooSlow saw the current frame first, frames was seen, and the time was since. 0 means that tooSlow has not
	// seen the frame.
	seen  uint64
	since time.Duration
}

// tooSlow reports whether the same frame is midway for age.
func (p *progress) tooSlow(midway bool, now, age time.Duration) bool {
	switch {
	case !midway:
		p.since = 0
	case p.since == 0 || p.frames != p.seen:
		p.seen, p.since = p.frames, now
	default:
		return now-p.since >= age
	}
	return false
}
