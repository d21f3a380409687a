package link

import (
	"encoding/binary"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/valyala/bytebufferpool"
)

// Owner of a message's memory. Release is called exactly once, when the Writer
// needs the message no more: often before the call that took it returns.
type Owner interface{ Release() }

// Writer is the sending half of a link: it encodes and interns, cuts into frames
// and schedules them. One loop owns it. Create it with NewWriter.
//
// There are three queues, emptied in this order: control; whole messages and the
// first frames of long ones; DATA. A message that fits one frame is encoded at
// once and its owner released. Of a longer one only the head is: its body stays
// with the owner until the last byte has gone. The caller bounds what piles up
// when the peer does not read: see Queued.
type Writer struct {
	state   writerState
	role    Role
	greet   bool // the preface has not left
	version uint8
	own     Settings
	frame   int  // longest payload that the peer takes
	tokens  bool // the peer takes responses with a StreamToken

	control []byte // frames that precede all messages
	slots   slots
	names   interner
	ready   queue

	longs   map[uint64]*outgoing // all that have DATA to send
	sending ring                 // those whose first frame has left
	credit  int                  // bytes of DATA that the peer still takes
	held    int                  // bytes that longs keep alive
	window  int                  // the peer's: credit never exceeds it

	scratch []byte // the head being encoded
	free    []*outgoing
	begun   func(*outgoing) // w.begin, bound once
}

type writerState uint8

const (
	writerWaiting writerState = iota // for the peer's preface: only ours may leave
	writerOpen
	writerClosed
)

// slots are control frames of which only the latest matters, so that no peer can
// make them pile up.
type slots struct {
	credit           uint32
	ping, pong       uint64
	load             Load
	hasPing, hasPong bool
	hasLoad          bool
}

// maxFree bounds the free lists of per-message structures.
const maxFree = 64

// NewWriter returns a Writer that is ready for Preface.
func NewWriter() *Writer {
	w := &Writer{longs: make(map[uint64]*outgoing)}
	w.begun = w.begin
	w.Reset()
	return w
}

// Reset makes w as good as new for another connection, releasing what it holds.
func (w *Writer) Reset() {
	w.Close()
	w.names.reset()
	w.state, w.own = writerWaiting, Settings{}.withDefaults()
	w.role, w.greet, w.version, w.tokens = 0, false, 0, false
	w.frame, w.credit, w.window = MinFrame-headerRoom, 0, 0
}

// Trim gives up memory that is kept for messages to come. Call it now and then while
// nothing is sent.
func (w *Writer) Trim() { w.ready.trim() }

// Close releases all owners and memory; nothing is sent any more. Calling it again
// is harmless.
func (w *Writer) Close() {
	w.state = writerClosed
	for id, s := range w.longs {
		delete(w.longs, id)
		w.recycle(s)
	}
	w.sending, w.held, w.slots = ring{}, 0, slots{}
	w.ready.clear()
	w.control, w.names.defs = w.control[:0], w.names.defs[:0]
}

// Preface queues the preface, the first thing on the wire. A dialer's offers all
// versions and leaves at once; an acceptor's names the one given to Open, and so
// waits for that.
func (w *Writer) Preface(role Role, own Settings) {
	w.own = own.withDefaults()
	w.role = role
	w.greet = true
}

// Open tells what came of the peer's preface (Handler.OnPreface). No frame leaves
// before it.
func (w *Writer) Open(version uint8, peer Settings) {
	if w.state != writerWaiting {
		return
	}
	peer = peer.withDefaults()
	w.state, w.version = writerOpen, version
	w.frame = int(peer.MaxFrame) - headerRoom
	w.tokens = peer.Features&FeatureStreams != 0
	w.window = int(peer.Window)
	w.credit = w.window
}

// Request queues a request. ids start at 1 and rise from call to call. ttl is
// the time left as of now: 0 for no deadline, negative for one that has passed
// (the peer sees 1 µs). o may be nil.
func (w *Writer) Request(id uint64, req *protocol.Request, ttl time.Duration, o Owner) {
	if w.state != writerClosed {
		w.scratch = w.names.appendRequest(w.scratch[:0], req, ttl)
	}
	w.message(frameRequest, id, req.Body, o)
}

// Response queues the answer to request id. o may be nil. One with a StreamToken
// has no Body; where the token can't go, because the peer lacks FeatureStreams,
// the request is Refused (ResponseTooLarge) instead.
func (w *Writer) Response(id uint64, resp *protocol.Response, codec protocol.Codec, o Owner) {
	if !w.sendable(resp) {
		w.Refused(id, ResponseTooLarge)
		if o != nil {
			o.Release()
		}
		return
	}
	if w.state != writerClosed {
		w.scratch = w.names.appendResponse(w.scratch[:0], resp, codec)
	}
	w.message(frameResponse, id, resp.Body, o)
}

// sendable tells whether the peer will get all of resp: one that does not know
// tokens would take the empty body for the whole one.
func (w *Writer) sendable(resp *protocol.Response) bool {
	return len(resp.StreamToken) == 0 ||
		w.tokens && len(resp.StreamToken) == len(Token{}) && len(resp.Body) == 0 && len(resp.Trailers) == 0
}

// message queues the message of which the head is in scratch.
func (w *Writer) message(t frameType, id uint64, body []byte, o Owner) {
	if w.state == writerClosed {
		if o != nil {
			o.Release()
		}
		return
	}
	head := len(w.scratch)
	total := varintLen(uint64(head)) + head + len(body)
	if total > w.frame {
		w.long(t, id, total, body, o)
		return
	}
	b := appendHeader(w.ready.buf, uint8(t), id, total)
	b = binary.AppendUvarint(b, uint64(head))
	b = append(b, w.scratch...)
	w.ready.buf = append(b, body...)
	w.ready.push(id, nil)
	if o != nil {
		o.Release()
	}
}

// long queues a message that needs DATA frames. Its first frame takes no part of
// the body: first frames need no credit, and many bodies started at once would
// pass by the window.
func (w *Writer) long(t frameType, id uint64, total int, body []byte, o Owner) {
	s := w.newOutgoing()
	s.id, s.body, s.owner = id, body, o
	prefix := varintLen(uint64(total)) + varintLen(uint64(len(w.scratch)))
	first := min(len(w.scratch), w.frame-prefix)
	if rest := w.scratch[first:]; len(rest) > 0 {
		s.head = bytebufferpool.Get()
		s.head.B = append(s.head.B[:0], rest...)
	}
	b := appendHeader(w.ready.buf, uint8(t)|flagMore, id, prefix+first)
	b = binary.AppendUvarint(b, uint64(total))
	b = binary.AppendUvarint(b, uint64(len(w.scratch)))
	w.ready.buf = append(b, w.scratch[:first]...)
	w.ready.push(id, s)
	s.held = s.left()
	w.held += s.held
	w.longs[id] = s
}

func (w *Writer) newOutgoing() *outgoing {
	if n := len(w.free); n > 0 {
		s := w.free[n-1]
		w.free = w.free[:n-1]
		return s
	}
	return &outgoing{}
}

// recycle releases what s holds. It is out of longs and of the ring by then.
func (w *Writer) recycle(s *outgoing) {
	w.held -= s.held
	s.release()
	if len(w.free) < maxFree {
		w.free = append(w.free, s)
	}
}

// Drop forgets what of message id has not left and releases its owner. started
// tells whether anything of it left (or id is not known: then all of it did). The
// peer's Reader forgets what it has of it; its handler is told nothing: that takes
// a Cancel or Refused. Of a response that is shorter than a frame, and has many
// behind it, nothing may be forgotten: it leaves in its turn, and started is true.
func (w *Writer) Drop(id uint64) (started bool) {
	if s := w.longs[id]; s != nil {
		delete(w.longs, id)
		started = s.begun
		if started {
			w.sending.remove(s)
			w.control = appendHeader(w.control, uint8(frameData)|flagAbort, id, 0)
		} else {
			w.ready.kill(s.at)
		}
		w.recycle(s)
		return started
	}
	if i := w.ready.find(id); i >= 0 {
		w.ready.kill(i)
		return false
	}
	return true
}

// Queued is the count of bytes held for sending: encoded ones and those of
// messages not released.
func (w *Writer) Queued() int { return w.Encoded() + w.held }

// Largest is the message that keeps most bytes from being released, and how many;
// 0 and 0 if all that is queued is short. It looks at all long ones.
func (w *Writer) Largest() (id uint64, n int) {
	for at, s := range w.longs {
		if s.held > n || s.held == n && at < id {
			id, n = at, s.held
		}
	}
	return id, n
}

// Starved tells whether DATA waits for the peer's CREDIT.
func (w *Writer) Starved() bool { return w.state == writerOpen && w.credit == 0 && w.sending.n > 0 }

// Control is the count of bytes of control frames held for sending. It stays
// small but where a peer asks for answers to CANCEL and PING that it does not read.
func (w *Writer) Control() int { return len(w.control) }

// Encoded is the count of bytes held for sending in the Writer's own memory, and
// not in that of an Owner.
func (w *Writer) Encoded() int {
	return len(w.control) + len(w.names.defs) + w.ready.pending()
}
