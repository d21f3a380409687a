package link

import (
	"maps"
	"slices"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
)

// Reader is the receiving half of a link. It keeps partial frames and messages in pooled
// memory. One loop owns it.
type Reader struct {
	state  readerState
	role   Role
	own    versions
	limits ReaderLimits
	err    error // the error of Feed, which all later calls return
	frame  int   // the longest payload
	tokens bool  // responses may have a StreamToken

	// partial holds the start of the preface or of a frame other than DATA. need is its whole
	// length, or 0 while its header is incomplete.
	partial *bytebufferpool.ByteBuffer
	need    int

	// The next left bytes of the current frame's payload go to sink; nil skips them.
	left int
	sink *incoming

	names      table
	assembling map[uint64]*incoming // messages in reassembly
	held       int                  // bytes of memory that they occupy
	lastID     uint64               // id of the last request

	requests uint64 // that have begun

	// moved counts completed frames. When Expire saw the current partial frame first, moved was stalled, and the
	// time was since; 0 means that Expire has not seen the frame.
	moved, stalled uint64
	since          time.Duration

	window, consumed uint32 // bytes the peer may still send, and bytes received since TakeConsumed

	// Used to decode a message.
	cursor cursor
	free   []*incoming
}

type readerState uint8

const (
	readPreface readerState = iota
	readFrames
	readClosed
)

// become changes the state, which only moves down the list. Reset begins anew.
func (r *Reader) become(next readerState) {
	if next < r.state {
		panic("link: illegal change of a Reader's state")
	}
	r.state = next
}

// NewReader returns a Reader for the side role of a link. own must be the settings that its
// Writer.Preface announces.
func NewReader(role Role, own Settings, l ReaderLimits) *Reader {
	r := &Reader{}
	r.Reset(role, own, l)
	return r
}

// Reset prepares r for another connection.
func (r *Reader) Reset(role Role, own Settings, l ReaderLimits) {
	r.Close()
	own = own.withDefaults()
	*r = Reader{
		role:       role,
		own:        versions{MinVersion, MaxVersion},
		limits:     l.withDefaults(),
		frame:      int(own.MaxFrame) - headerRoom,
		tokens:     own.Features&FeatureStreams != 0,
		window:     own.Window,
		assembling: r.assembling,
		free:       r.free,
	}
}

// Close gives back all memory. A handler may call it during Feed. Feed then does nothing any
// more, not even with the rest of its input.
func (r *Reader) Close() {
	r.become(readClosed)
	r.dropPartial()
	for _, s := range r.assembling {
		r.discard(s)
	}
	r.names = table{} // not reused: messages may refer to its texts
}

// Feed consumes all of b, which belongs to the caller again afterwards. It calls h for every
// frame and message that b completes. An error, always an *Error, means that the link must be
// closed; all later calls return it again. Of a partial frame, only its header (at most 14
// bytes) is read twice.
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
		r.become(readFrames)
		h.OnPreface(version, peer)
		return b
	}
	return nil
}

// stream ends the link: the peer's preface begins a stream. rest is the input after that.
func (r *Reader) stream(rest []byte, h Handler) {
	s, err := parseStreamPreface(r.partial.B, r.own)
	r.dropPartial()
	if r.err = err; err == nil {
		r.become(readClosed)
		h.OnStream(s, rest)
	}
}

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
	if r.beginStreamed(f) {
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

// resume extends a partial frame: byte by byte until the header is complete, then with all
// missing bytes at once.
func (r *Reader) resume(b []byte, h Handler) []byte {
	if r.need == 0 {
		r.save(b[:1])
		f, n, err := parseHeader(r.partial.B, r.frame)
		if err != nil {
			r.err = err
			return nil
		}
		if n > 0 {
			if r.need = n + f.length; r.beginStreamed(f) {
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

// beginStreamed begins f if its payload is consumed as it arrives: DATA, and a frame that is skipped. It reports whether
// f is such a frame, even if f is invalid.
func (r *Reader) beginStreamed(f header) bool {
	switch {
	case f.typ == frameData:
		r.err = r.beginData(f)
	case f.typ.skipped():
		r.left, r.sink = f.length, nil
	default:
		return false
	}
	return true
}

// Buffered returns the bytes of memory (protocol.Held) of partial frames and messages.
func (r *Reader) Buffered() int { return r.held + protocol.Held(r.partial) }

// Interned returns the bytes of memory of the interning table.
func (r *Reader) Interned() int { return r.names.held() }

// Requests returns how many requests have begun.
func (r *Reader) Requests() uint64 { return r.requests }

// Assembled returns the bytes of memory of message id, or 0 if it is not in reassembly.
func (r *Reader) Assembled(id uint64) int {
	if s := r.assembling[id]; s != nil {
		return protocol.Held(s.buf)
	}
	return 0
}

// Largest returns the message in reassembly with the most memory, and its bytes, or 0 and 0 if
// there is none. It visits all of them.
func (r *Reader) Largest() (id uint64, n int) {
	for at, s := range r.assembling {
		if held := protocol.Held(s.buf); held > n || held == n && at < id {
			id, n = at, held
		}
	}
	return id, n
}

// TakeConsumed returns the number of DATA bytes received since the last call, and opens the window for as many more. The
// caller must grant them with Writer.Credit.
func (r *Reader) TakeConsumed() uint32 {
	n := r.consumed
	r.consumed = 0
	r.window += n
	return n
}

// Forget drops message id if it is in reassembly. The rest is skipped, but counts as consumed.
func (r *Reader) Forget(id uint64) {
	if s := r.assembling[id]; s != nil {
		r.discard(s)
	}
}

// ForgetAll drops all messages in reassembly and returns their ids, rising.
func (r *Reader) ForgetAll() []uint64 {
	ids := slices.Sorted(maps.Keys(r.assembling))
	for _, id := range ids {
		r.Forget(id)
	}
	return ids
}
