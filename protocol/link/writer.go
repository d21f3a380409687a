package link

import (
	"encoding/binary"
	"hash/maphash"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/valyala/bytebufferpool"
)

// Owner owns the memory of a message.
type Owner interface {
	// Release is called exactly once, when Writer no longer needs the message: often before the
	// call that took it returns.
	Release()
	// Buffered returns the bytes of memory that the message holds until then.
	Buffered() int
}

// Writer is the sending half of a link: it encodes messages, and sends their frames in order. One loop
// owns it. NewWriter returns one.
//
// Three queues are emptied in this order: control frames (controls); whole messages and the first frames
// of long ones (queue); DATA, that of batch messages last (scheduler). A message that fits one frame is encoded at
// once and its owner released. Of a longer one, and of a batch message with more than batchWhole
// bytes of body, only the head is encoded: its body stays with the owner until the last byte has
// left. The caller must limit what accumulates when the peer does not read: see Queued.
type Writer struct {
	state      writerState
	role       Role
	greet      bool // the preface has not left
	version    uint8
	own        Settings
	maxPayload int  // of a frame but DATA; the peer accepts no longer one
	maxData    int  // the same of DATA; set by Open, before which no DATA leaves
	tokens     bool // the peer accepts responses with a StreamToken

	controls
	messages queue
	data     scheduler
	names    *interner // nil before the first message

	scratch      []byte          // the head being encoded
	onFirstFrame func(*outgoing) // data.begin, bound once to avoid allocations
}

type writerState uint8

const (
	writerWaiting writerState = iota // for the peer's preface: only the own preface may leave
	writerOpen
	writerClosed
)

// become changes the state, which only moves down the list.
func (w *Writer) become(next writerState) {
	if next < w.state {
		panic("link: illegal change of a Writer's state")
	}
	w.state = next
}

// NewWriter returns a Writer; the caller must call Preface next.
func NewWriter() *Writer {
	w := &Writer{own: Settings{}.withDefaults(), maxPayload: MinFrame - headerRoom}
	w.onFirstFrame = w.data.begin
	return w
}

// Trim drops memory kept for future messages. Call it from time to time while nothing is sent.
func (w *Writer) Trim() {
	w.messages.trim()
	if cap(w.scratch) > keepIdle {
		w.scratch = nil
	}
}

// Close releases all owners and memory. Nothing is sent afterwards. Another call does nothing.
func (w *Writer) Close() {
	w.become(writerClosed)
	w.controls.clear()
	w.controls.closed = true
	w.messages.clear()
	w.data.clear()
	w.names = nil
}

// Preface queues the preface, the first bytes on the wire. The preface of a dialer offers all versions and
// leaves at once. The preface of an acceptor names the version given to Open, and so waits for Open.
func (w *Writer) Preface(role Role, own Settings) {
	w.own = own.withDefaults()
	w.role = role
	w.greet = true
}

// Open sets the version and the peer's settings from its preface (Handler.OnPreface). No frame
// leaves before.
func (w *Writer) Open(version uint8, peer Settings) {
	if w.state != writerWaiting {
		return
	}
	peer = peer.withDefaults()
	w.become(writerOpen)
	w.version = version
	w.maxPayload, w.maxData = int(min(peer.MaxFrame, maxWhole))-headerRoom, int(peer.MaxFrame)-headerRoom
	w.tokens = peer.Features&FeatureStreams != 0
	w.data.credit, w.data.window = int(peer.Window), int(peer.Window)
}

// Request queues a request. ids start at 1 and increase with each call. ttl is the time left:
// 0 means no deadline, and negative one that has passed (the peer sees 1 µs). o may be nil.
func (w *Writer) Request(id uint64, req *protocol.Request, ttl time.Duration, o Owner) {
	if w.state != writerClosed {
		w.scratch = w.table().appendRequest(w.scratch[:0], req, ttl)
	}
	w.message(frameRequest, id, req.Body, req.Batch, o)
}

// Response queues the response to request id. o may be nil. A response with a StreamToken has
// no Body. If the peer lacks FeatureStreams, it can't get the token: the request is Refused
// (ResponseTooLarge) instead.
func (w *Writer) Response(id uint64, resp *protocol.Response, codec protocol.Codec, o Owner) {
	if !w.sendable(resp) {
		w.Refused(id, ResponseTooLarge)
		if o != nil {
			o.Release()
		}
		return
	}
	if w.state != writerClosed {
		w.scratch = w.table().appendResponse(w.scratch[:0], resp, codec)
	}
	w.message(frameResponse, id, resp.Body, resp.Batch, o)
}

// Interim queues an interim response (1xx but 101) to request id, ahead of its Response. One that does not
// fit into a frame is dropped. The memory of resp may be used again.
func (w *Writer) Interim(id uint64, resp *protocol.Response) {
	if w.state == writerClosed {
		return
	}
	w.scratch = w.table().appendInterim(w.scratch[:0], resp)
	if len(w.scratch) > w.maxPayload {
		return
	}
	w.messages.buf = append(appendHeader(w.messages.buf, uint8(frameInterim), id, len(w.scratch)), w.scratch...)
	w.messages.push(id, nil)
}

func (w *Writer) table() *interner {
	if w.names == nil {
		w.names = &interner{seed: maphash.MakeSeed()}
	}
	return w.names
}

// sendable reports whether the peer would get all of resp. A peer that does not know tokens
// would take the empty body for the whole one.
func (w *Writer) sendable(resp *protocol.Response) bool {
	return len(resp.StreamToken) == 0 ||
		w.tokens && len(resp.StreamToken) == len(Token{}) && len(resp.Body) == 0 && len(resp.Trailers) == 0
}

// message queues the message whose head is in scratch.
func (w *Writer) message(t frameType, id uint64, body []byte, batch bool, o Owner) {
	if w.state == writerClosed {
		if o != nil {
			o.Release()
		}
		return
	}
	head := len(w.scratch)
	total := varintLen(uint64(head)) + head + len(body)
	if total > w.maxPayload || batch && len(body) > batchWhole {
		w.long(t, id, total, body, batch, o)
		return
	}
	b := appendHeader(w.messages.buf, uint8(t), id, total)
	b = binary.AppendUvarint(b, uint64(head))
	b = append(b, w.scratch...)
	w.messages.buf = append(b, body...)
	w.messages.push(id, nil)
	if o != nil {
		o.Release()
	}
}

// long queues a message that needs DATA frames. Its first frame has no part of the body: first
// frames need no credit, and many bodies that begin at once would exceed the window.
func (w *Writer) long(t frameType, id uint64, total int, body []byte, batch bool, o Owner) {
	s := w.data.unused()
	s.id, s.body, s.batch, s.owner = id, body, batch, o
	prefix := varintLen(uint64(total)) + varintLen(uint64(len(w.scratch)))
	first := min(len(w.scratch), w.maxPayload-prefix)
	if rest := w.scratch[first:]; len(rest) > 0 {
		s.head = bytebufferpool.Get()
		s.head.B = append(s.head.B[:0], rest...)
	}
	b := appendHeader(w.messages.buf, uint8(t)|flagMore, id, prefix+first)
	b = binary.AppendUvarint(b, uint64(total))
	b = binary.AppendUvarint(b, uint64(len(w.scratch)))
	w.messages.buf = append(b, w.scratch[:first]...)
	w.messages.push(id, s)
	w.data.add(s)
}

// Drop removes the unsent part of message id and releases its owner. started reports whether
// any part of it was sent; it is true if id is unknown, because all of it was sent then. The
// peer's Reader drops its part, but its handler learns nothing: that takes a Cancel or
// Refused. A short response with many others queued behind it can't be removed: it is sent in
// its turn, and started is true.
func (w *Writer) Drop(id uint64) (started bool) {
	if s := w.data.all[id]; s != nil {
		started = s.begun
		if started {
			w.abort(id)
		} else {
			w.messages.kill(s.at)
		}
		w.data.drop(s)
		return started
	}
	if i := w.messages.find(id); i >= 0 {
		w.messages.kill(i)
		return false
	}
	return true
}

// Cancel cancels request id and reports whether any of it was sent. If none was, the request
// is dropped here, and no CANCEL_ACK will come.
func (w *Writer) Cancel(id uint64) (sent bool) {
	if !w.Drop(id) {
		return false
	}
	w.cancel(id)
	return true
}

// Unsent reports whether a part of request id was not sent. It is for dialers.
func (w *Writer) Unsent(id uint64) bool { return w.data.all[id] != nil || w.messages.find(id) >= 0 }

// Queued returns the bytes held for sending: encoded, and in messages that are not released.
func (w *Writer) Queued() int { return w.Encoded() + w.data.held }

// Waiting returns the bytes of memory of the long messages that wait to be sent. It visits all of them.
func (w *Writer) Waiting() int { return w.data.memory() }

// Largest returns the long message that holds the most memory while it waits to be sent, and its bytes, or
// 0 and 0 if there is none. It visits all long messages.
func (w *Writer) Largest() (id uint64, n int) { return w.data.largest() }

// Granted adds the credit of a CREDIT frame.
func (w *Writer) Granted(n uint32) { w.data.grant(n) }

// Starved reports whether DATA waits for the peer's CREDIT.
func (w *Writer) Starved() bool { return w.state == writerOpen && w.data.starved() }

// Encoded returns the bytes held for sending in the Writer's own memory, without Owners.
func (w *Writer) Encoded() int {
	return len(w.controls.frames) + w.defined() + w.messages.pending()
}

// defined returns the bytes of DEFINE frames held for sending.
func (w *Writer) defined() int {
	if w.names == nil {
		return 0
	}
	return len(w.names.defs)
}

// Interned returns the bytes of memory of the interning table.
func (w *Writer) Interned() int { return w.names.held() }
