package link

import (
	"time"

	"github.com/remora-proxy/remora/protocol"
)

// Reader is the receiving half of a link: it takes the bytes apart into frames, and dispatches these. One loop owns it.
// Partial frames and messages are kept in pooled memory.
type Reader struct {
	state      readerState
	role       Role
	offered    versions
	err        error // the error of Feed, which all later calls return
	maxPayload int
	left       int // bytes of the payload of a streamed frame that have not arrived

	partial  partial
	progress progress
	assembly assembly
	decoder

	lastID   uint64 // id of the last request
	requests uint64 // that have begun
}

type readerState uint8

const (
	readPreface readerState = iota
	readFrames
	readClosed
)

// become changes the state, which only moves down the list.
func (r *Reader) become(next readerState) {
	if next < r.state {
		panic("link: illegal change of a Reader's state")
	}
	r.state = next
}

// NewAcceptor returns the Reader of the side that has accepted the connection. own must be the settings that its
// Writer.Preface announces.
func NewAcceptor(own Settings, l ReaderLimits, h RequestHandler) *Reader {
	return newReader(Acceptor, own, l, decoder{handler: h, acceptor: h})
}

// NewDialer returns the Reader of the side that has dialled. own must be the settings that its Writer.Preface announces.
func NewDialer(own Settings, l ReaderLimits, h ResponseHandler) *Reader {
	return newReader(Dialer, own, l, decoder{handler: h, dialer: h})
}

func newReader(role Role, own Settings, l ReaderLimits, d decoder) *Reader {
	own = own.withDefaults()
	d.limits = l.withDefaults()
	d.tokens = own.Features&FeatureStreams != 0
	return &Reader{
		role:       role,
		offered:    versions{MinVersion, MaxVersion},
		maxPayload: int(own.MaxFrame) - headerRoom,
		decoder:    d,
		assembly:   assembly{buffers: d.limits.Buffers, window: own.Window},
	}
}

// Close gives back all memory. A handler may call it during Feed. Feed then does nothing any
// more, not even with the rest of its input.
func (r *Reader) Close() {
	r.become(readClosed)
	r.partial.drop(r.limits.Buffers)
	r.ForgetAll()
	r.names = table{} // not reused: messages may refer to its texts
}

// Feed consumes all of b, which belongs to the caller again afterwards. It calls the handler for every
// frame and message that b completes. An error, always an *Error, means that the link must be
// closed; all later calls return it again. Of a partial frame, only its header (at most 14
// bytes) is read twice.
func (r *Reader) Feed(b []byte) error {
	for len(b) > 0 && r.err == nil && r.state != readClosed {
		switch {
		case r.left > 0:
			b = r.payload(b)
		case r.state == readPreface:
			b = r.preface(b)
		case r.partial.buf != nil:
			b = r.resume(b)
		default:
			b = r.next(b)
		}
	}
	return r.err
}

// Room returns protocol.Room for the rest of the DATA frame that arrives, or nil.
func (r *Reader) Room() []byte {
	if s := r.assembly.sink; s != nil {
		return protocol.Room(s.buf, r.left)
	}
	return nil
}

func (r *Reader) preface(b []byte) []byte {
	for len(b) > 0 {
		r.partial.save(b[:1], r.limits.Buffers)
		b = b[1:]
		begun := r.partial.buf.B
		n, err := prefaceLen(begun)
		if err != nil {
			r.err = err
			return nil
		}
		if len(begun) < n {
			continue
		}
		if r.role == Acceptor && Role(begun[len(magic)]) == streamRole {
			r.stream(b)
			return nil
		}
		version, peer, err := parsePreface(begun, r.role, r.offered)
		r.partial.drop(r.limits.Buffers)
		if err != nil {
			r.err = err
			return nil
		}
		r.become(readFrames)
		r.handler.OnPreface(version, peer)
		return b
	}
	return nil
}

// stream ends the link: the peer's preface begins a stream. rest is the input after that.
func (r *Reader) stream(rest []byte) {
	s, err := parseStreamPreface(r.partial.buf.B, r.offered)
	r.partial.drop(r.limits.Buffers)
	if r.err = err; err == nil {
		r.become(readClosed)
		r.acceptor.OnStream(s, rest)
	}
}

func (r *Reader) next(b []byte) []byte {
	f, n, err := parseHeader(b, r.maxPayload)
	if err != nil {
		r.err = err
		return nil
	}
	if n == 0 {
		r.partial.save(b, r.limits.Buffers)
		return nil
	}
	if r.beginStreamed(f) {
		return b[n:]
	}
	if len(b)-n < f.length {
		r.partial.save(b, r.limits.Buffers)
		r.partial.need = n + f.length
		return nil
	}
	r.err = r.dispatch(f, b[n:n+f.length:n+f.length])
	return b[n+f.length:]
}

// resume extends a partial frame: byte by byte until the header is complete, then with all
// missing bytes at once.
func (r *Reader) resume(b []byte) []byte {
	n := min(len(b), r.partial.missing())
	r.partial.save(b[:n], r.limits.Buffers)
	b = b[n:]
	if r.partial.need == 0 {
		f, n, err := parseHeader(r.partial.buf.B, r.maxPayload)
		if err != nil {
			r.err = err
			return nil
		}
		if n == 0 {
			return b
		}
		if r.beginStreamed(f) {
			r.partial.drop(r.limits.Buffers)
			return b
		}
		r.partial.need = n + f.length
	}
	if r.partial.missing() > 0 {
		return b
	}
	whole := r.partial.take() // the handler may call Close
	f, n, err := parseHeader(whole.B, r.maxPayload)
	if r.err = err; err == nil {
		r.err = r.dispatch(f, whole.B[n:])
	}
	r.limits.Buffers.Put(whole)
	return b
}

// beginStreamed begins f if its payload is consumed as it arrives: DATA, and a frame that is skipped. It reports whether
// f is such a frame, even if f is invalid.
func (r *Reader) beginStreamed(f header) bool {
	switch {
	case f.typ == frameData:
		r.err = r.beginData(f)
	case f.typ.skipped():
		r.left = f.length
	default:
		return false
	}
	return true
}

// beginData handles the header of a DATA frame.
func (r *Reader) beginData(f header) error {
	if f.id == 0 {
		return ErrStreamID
	}
	abort := f.flags&flagAbort != 0
	if abort != (f.length == 0) { // empty DATA, or a part of a message that is withdrawn
		return ErrPayload
	}
	if abort {
		r.Forget(f.id)
		return nil
	}
	err := r.assembly.begin(f.id, f.length)
	if err == nil {
		r.left = f.length
	}
	return err
}

// payload consumes the part of a streamed frame's payload that b holds.
func (r *Reader) payload(b []byte) []byte {
	n := min(len(b), r.left)
	if r.left -= n; r.left == 0 {
		r.progress.frames++
	}
	if s := r.assembly.take(b[:n], r.left == 0); s != nil {
		t, id := s.typ, s.id
		r.err = r.deliver(t, id, r.assembly.remove(s))
	}
	return b[n:]
}

// Midway reports whether a frame or a message has arrived in part. If so, Expire must be
// called from time to time.
func (r *Reader) Midway() bool { return r.assembly.held > 0 || r.inFrame() }

func (r *Reader) inFrame() bool { return r.partial.buf != nil || r.left > 0 }

// Expire ends what is incomplete for longer than age, measured from the first call of Expire
// that saw it. A message is rejected (Handler.OnReject with DeadlinePassed), and the rest of
// it is skipped. An incomplete frame or preface is an error: close the link. now may be any
// monotonic clock, and must not be 0.
func (r *Reader) Expire(now, age time.Duration) error {
	if r.err != nil || r.state == readClosed {
		return r.err
	}
	if r.progress.tooSlow(r.inFrame(), now, age) {
		r.err = ErrSlow
		return r.err
	}
	for _, id := range r.assembly.late(now, age) {
		r.Forget(id)
		r.handler.OnReject(id, DeadlinePassed)
	}
	return nil
}

// Buffered returns the bytes of memory (protocol.Held) of partial frames and messages.
func (r *Reader) Buffered() int { return r.assembly.held + protocol.Held(r.partial.buf) }

// Interned returns the bytes of memory of the interning table.
func (r *Reader) Interned() int { return r.names.held() }

// Requests returns how many requests have begun.
func (r *Reader) Requests() uint64 { return r.requests }

// Assembled returns the bytes of memory of message id, or 0 if it is not in reassembly.
func (r *Reader) Assembled(id uint64) int {
	if s := r.assembly.messages[id]; s != nil {
		return protocol.Held(s.buf)
	}
	return 0
}

// Largest returns the message in reassembly with the most memory, and its bytes, or 0 and 0 if
// there is none. It visits all of them.
func (r *Reader) Largest() (id uint64, n int) { return r.assembly.largest() }

// TakeConsumed returns the number of DATA bytes received since the last call, and opens the window for as many more. The
// caller must grant them with Writer.Credit.
func (r *Reader) TakeConsumed() uint32 { return r.assembly.takeConsumed() }

// Forget drops message id if it is in reassembly. The rest is skipped, but counts as consumed.
func (r *Reader) Forget(id uint64) { r.assembly.drop(id) }

// ForgetAll drops all messages in reassembly and returns their ids, rising.
func (r *Reader) ForgetAll() []uint64 {
	ids := r.assembly.ids()
	for _, id := range ids {
		r.Forget(id)
	}
	return ids
}
