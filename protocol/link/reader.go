package link

import (
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/valyala/bytebufferpool"
)

// Reader is the receiving half of a link. It keeps partial frames and messages
// in pooled memory. One loop owns it. Create it with NewReader.
type Reader struct {
	state  readerState
	role   Role
	own    versions
	limits ReaderLimits
	err    error // what Feed returned; it returns it for ever
	frame  int   // longest payload
	tokens bool  // responses may have a StreamToken

	// partial holds the start of a frame (or of the preface) that is not DATA,
	// need is its whole length, 0 while its header is not complete.
	partial *bytebufferpool.ByteBuffer
	need    int

	// left bytes of the payload of the current frame go straight to sink, or
	// nowhere when that is nil.
	left int
	sink *incoming

	names   table
	streams map[uint64]*incoming // messages in reassembly
	held    int                  // bytes of memory in them
	lastID  uint64               // of the last request

	// moved counts the ends of frames; stalled is its value, and since the time,
	// when Expire first saw the frame that is here in part; since is 0 when it
	// saw none.
	moved, stalled uint64
	since          time.Duration

	window, consumed uint32 // what the peer may still send, and what it sent since Consumed

	// What a message is decoded with and into.
	cursor cursor
	req    protocol.Request
	resp   protocol.Response
	free   []*incoming
}

type readerState uint8

const (
	readPreface readerState = iota
	readFrames
	readClosed
)

// NewReader returns a Reader for the side role of a link, with the settings that
// its Writer.Preface announces.
func NewReader(role Role, own Settings, l ReaderLimits) *Reader {
	r := &Reader{streams: make(map[uint64]*incoming)}
	r.Reset(role, own, l)
	return r
}

// Reset makes r as good as new for another connection.
func (r *Reader) Reset(role Role, own Settings, l ReaderLimits) {
	r.Close()
	own = own.withDefaults()
	*r = Reader{
		role:    role,
		own:     versions{MinVersion, MaxVersion},
		limits:  l.withDefaults(),
		frame:   int(own.MaxFrame) - headerRoom,
		tokens:  own.Features&FeatureStreams != 0,
		window:  own.Window,
		streams: r.streams,
		req:     r.req,
		resp:    r.resp,
		free:    r.free,
	}
}

// Close gives back all memory. Feed does nothing afterwards, not even with the
// rest of what it is at work on: Close may be called by the handler.
func (r *Reader) Close() {
	r.state = readClosed
	r.dropPartial()
	for _, s := range r.streams {
		r.discard(s)
	}
	r.names = table{} // not reused: messages may point to its texts
}

// Feed takes all of b, which is the caller's again on return, and calls h for
// every frame and message that it completes. An error, always an *Error, means:
// close the link; it is returned again by every later call. Nothing of a partial
// frame but its header (at most 14 bytes) is looked at twice.
func (r *Reader) Feed(b []byte, h Handler) error {
	for len(b) > 0 && r.err == nil && r.state != readClosed {
		switch {
		case r.left > 0:
			b = r.payload(b, h)
		case r.state == readPreface:
			b = r.preface(b, h)
		case r.partial != nil:
			b = r.resume(b, h)
		default:
			b = r.next(b, h)
		}
	}
	return r.err
}

// preface collects the peer's preface.
func (r *Reader) preface(b []byte, h Handler) []byte {
	for len(b) > 0 {
		r.save(b[:1])
		b = b[1:]
		n, err := prefaceLen(r.partial.B)
		if err != nil {
			r.err = err
			return nil
		}
		if len(r.partial.B) < n {
			continue
		}
		if r.role == Acceptor && Role(r.partial.B[len(magic)]) == streamRole {
			r.stream(b, h)
			return nil
		}
		version, peer, err := parsePreface(r.partial.B, r.role, r.own)
		r.dropPartial()
		if err != nil {
			r.err = err
			return nil
		}
		r.state = readFrames
		h.OnPreface(version, peer)
		return b
	}
	return nil
}

// stream ends the link before it began: the preface is a stream's, rest what
// follows it.
func (r *Reader) stream(rest []byte, h Handler) {
	s, err := parseStreamPreface(r.partial.B, r.own)
	r.dropPartial()
	if r.err = err; err == nil {
		r.state = readClosed
		h.OnStream(s, rest)
	}
}

// next takes the frame at the start of b.
func (r *Reader) next(b []byte, h Handler) []byte {
	f, n, err := parseHeader(b, r.frame)
	if err != nil {
		r.err = err
		return nil
	}
	if n == 0 {
		r.save(b)
		return nil
	}
	if r.streamed(f) {
		return b[n:]
	}
	if len(b)-n < f.length {
		r.save(b)
		r.need = n + f.length
		return nil
	}
	if r.err == nil {
		r.err = r.dispatch(f, b[n:n+f.length:n+f.length], h)
	}
	return b[n+f.length:]
}

// resume adds to a partial frame: first byte by byte until the header is whole,
// then all that is missing at once.
func (r *Reader) resume(b []byte, h Handler) []byte {
	if r.need == 0 {
		r.save(b[:1])
		f, n, err := parseHeader(r.partial.B, r.frame)
		if err != nil {
			r.err = err
			return nil
		}
		if n > 0 {
			if r.need = n + f.length; r.streamed(f) {
				r.dropPartial()
				return b[1:]
			}
		}
		b = b[1:]
	} else {
		n := min(len(b), r.need-len(r.partial.B))
		r.save(b[:n])
		b = b[n:]
	}
	if r.need == 0 || len(r.partial.B) < r.need {
		return b
	}
	whole := r.partial // the handler may call Close
	r.partial, r.need = nil, 0
	f, n, err := parseHeader(whole.B, r.frame)
	if r.err = err; err == nil {
		r.err = r.dispatch(f, whole.B[n:], h)
	}
	r.limits.Buffers.Put(whole)
	return b
}

func (r *Reader) save(b []byte) {
	if r.partial == nil {
		r.partial = r.limits.Buffers.Get(0)
	}
	r.limits.Buffers.Append(r.partial, b, r.need)
}

func (r *Reader) dropPartial() {
	if r.partial != nil {
		r.limits.Buffers.Put(r.partial)
	}
	r.partial, r.need = nil, 0
}

// streamed begins a frame of which the payload is taken as it comes: DATA, and
// what is skipped. It tells whether f is one, or in error.
func (r *Reader) streamed(f header) bool {
	switch {
	case f.typ == frameData:
		r.err = r.beginData(f)
	case f.typ >= frameSkippable:
		r.left, r.sink = f.length, nil
	default:
		return false
	}
	return true
}

// Buffered is the count of bytes held (protocol.Held) for partial frames and
// messages.
func (r *Reader) Buffered() int { return r.held + protocol.Held(r.partial) }

// Assembled is the count of bytes held for message id, 0 if it is not in
// reassembly.
func (r *Reader) Assembled(id uint64) int {
	if s := r.streams[id]; s != nil {
		return protocol.Held(s.buf)
	}
	return 0
}

// Largest is the message in reassembly that most is held for, and how many bytes
// that are; 0 and 0 if there is none. It looks at all of them.
func (r *Reader) Largest() (id uint64, n int) {
	for at, s := range r.streams {
		if held := protocol.Held(s.buf); held > n || held == n && at < id {
			id, n = at, held
		}
	}
	return id, n
}

// Consumed is the count of DATA bytes taken since the last call: what to grant
// back with Writer.Credit.
func (r *Reader) Consumed() uint32 {
	n := r.consumed
	r.consumed = 0
	r.window += n
	return n
}

// Forget drops message id if it is in reassembly. What else arrives of it is
// skipped, and still counts as consumed.
func (r *Reader) Forget(id uint64) {
	if s := r.streams[id]; s != nil {
		r.discard(s)
	}
}
