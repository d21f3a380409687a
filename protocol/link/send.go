package link

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// Gather appends the next frames to dst: control, then whole short messages in order, then
// DATA, frame by frame, while credit and budget last. budget, in bytes, is
// soft. All control frames are appended, and at least one message and one DATA frame if there
// are any, so that neither waits forever. Apart from control, the frames have less than budget
// plus two frames.
//
// Bodies in DATA are not copied: Gather appends to parts what must leave, in a row. These slices
// belong to dst and to the owners of the bodies. The caller must call Sent when it needs them no
// more, before any other method.
func (w *Writer) Gather(dst []byte, parts [][]byte, budget int) ([]byte, [][]byte) {
	from, limit := len(dst), len(dst)+budget
	dst = w.appendMessages(dst, limit)
	for size, first := len(dst), true; w.hasData() && (first || size < limit); first = false {
		var body []byte
		dst, body = w.appendData(dst)
		parts = append(parts, dst[from:], body)
		size += len(dst) - from + len(body)
		from = len(dst)
	}
	if len(dst) > from {
		parts = append(parts, dst[from:])
	}
	return dst, parts
}

// Sent releases the owners of the messages that end with what Gather has returned.
func (w *Writer) Sent() {
	for _, s := range w.ended {
		w.recycle(s)
	}
	clear(w.ended)
	w.ended = w.ended[:0]
}

// Append is Gather and Sent for a caller that needs the frames in one slice.
func (w *Writer) Append(dst []byte, budget int) []byte {
	var one [1][]byte
	all, parts := w.Gather(dst, one[:0], budget)
	if len(parts) > 1 {
		all = append(slices.Clone(dst), bytes.Join(parts, nil)...)
	}
	w.Sent()
	return all
}

// appendMessages appends all but DATA.
func (w *Writer) appendMessages(dst []byte, limit int) []byte {
	if w.greets() {
		dst = w.appendPreface(dst)
	}
	if w.state != writerOpen {
		return dst
	}
	if w.defined() > 0 {
		dst = append(dst, w.names.defs...) // ahead of the messages that refer to them
		w.names.defs = nil
	}
	dst = append(dst, w.control...)
	w.control = emptied(w.control)
	dst = w.slots.append(dst)
	return w.ready.take(dst, limit, w.begun)
}

func (w *Writer) greets() bool {
	return w.greet && (w.state == writerOpen || w.state == writerWaiting && w.role == Dialer)
}

func (w *Writer) appendPreface(dst []byte) []byte {
	w.greet = false
	v := versions{MinVersion, MaxVersion}
	if w.role == Acceptor {
		v = versions{w.version, w.version}
	}
	return appendPreface(dst, w.role, v, w.own)
}

func emptied(b []byte) []byte {
	if cap(b) > keepBuffer {
		return nil
	}
	return b[:0]
}

// begin lets s send DATA, since its first frame has left.
func (w *Writer) begin(s *outgoing) {
	s.begun = true
	w.lanesOf(s).add(s)
}

func (w *Writer) lanesOf(s *outgoing) *lanes {
	if s.batch {
		return &w.batch
	}
	return &w.sending
}

// batchWhole is the longest body, in bytes, of a batch message that is sent as a whole. While
// other messages have DATA, one frame in batchFrames is of a batch message.
const (
	batchWhole  = 1 << 10
	batchFrames = 8
)

// spare is the credit that batch messages may use. They leave half of the window to others.
func (w *Writer) spare() int { return w.credit - w.window/2 }

// hasData reports whether a long message has both DATA and credit.
func (w *Writer) hasData() bool {
	return w.sending.n > 0 && w.credit > 0 || w.batch.n > 0 && w.spare() > 0
}

// nextData returns the lanes whose turn it is, and the credit that they may use.
func (w *Writer) nextData() (l *lanes, credit int) {
	if w.batch.n == 0 {
		return &w.sending, w.credit
	}
	if w.sending.n == 0 {
		return &w.batch, w.spare()
	}
	if w.framesSinceBatch++; w.framesSinceBatch%batchFrames == 0 {
		return &w.batch, w.credit
	}
	return &w.sending, w.credit
}

// appendData appends the next DATA frame to dst, but for the part of a body that ends it.
func (w *Writer) appendData(dst []byte) (_, body []byte) {
	l, credit := w.nextData()
	s := l.pick()
	n := min(s.left(), w.frame, credit)
	dst = appendHeader(dst, uint8(frameData), s.id, n)
	dst, body = s.take(dst, n)
	w.credit -= n
	if s.left() > 0 {
		return dst, body
	}
	l.remove(s)
	delete(w.longs, s.id)
	w.ended = append(w.ended, s)
	return dst, body
}

// append appends the frames of the occupied slots and empties them.
func (s *slots) append(dst []byte) []byte {
	if s.credit > 0 {
		dst = appendHeader(dst, uint8(frameCredit), 0, varintLen(uint64(s.credit)))
		dst = binary.AppendUvarint(dst, uint64(s.credit))
	}
	if s.hasPing {
		dst = appendHeader(dst, uint8(framePing), s.ping, 0)
	}
	if s.hasPong {
		dst = appendHeader(dst, uint8(framePong), s.pong, 0)
	}
	if s.hasLoad {
		t := frameLoad
		if s.answers {
			t = frameAnswer
		}
		dst = appendLoad(dst, t, s.load)
	}
	*s = slots{}
	return dst
}

// Ready reports whether Append has frames that are worth a write. Credit alone is not, if it
// is less than a quarter of the window: it leaves with the next frames, and the peer still has
// three quarters.
func (w *Writer) Ready() bool {
	if w.greets() {
		return true
	}
	if w.state != writerOpen {
		return false
	}
	s := &w.slots
	return w.ready.live > 0 || len(w.control) > 0 || w.defined() > 0 ||
		s.hasPing || s.hasPong || s.hasLoad || s.credit >= w.own.Window/4 ||
		w.hasData()
}

// Granted adds the credit of a CREDIT frame.
func (w *Writer) Granted(n uint32) {
	w.credit = min(w.credit+int(n), w.window)
}

// Cancel cancels request id and reports whether any of it was sent. If none was, the request
// is dropped here, and no CANCEL_ACK will come.
func (w *Writer) Cancel(id uint64) (sent bool) {
	if !w.Drop(id) {
		return false
	}
	w.append(appendHeader(w.control, uint8(frameCancel), id, 0))
	return true
}

// CancelAck responds to a CANCEL. To keep a queued response from leaving, call Drop before.
func (w *Writer) CancelAck(id uint64, d Dropped) {
	w.append(append(appendHeader(w.control, uint8(frameCancelAck), id, 1), byte(d)))
}

// Refused ends request id without a response; why tells if the application may have seen it.
func (w *Writer) Refused(id uint64, why Reason) {
	w.append(append(appendHeader(w.control, uint8(frameRefused), id, 1), byte(why)))
}

// Start asks the acceptor, which has FeatureStarts, to tell when it starts request id: when it no longer waits for the
// application. The acceptor tells the dialer that by Start, too.
func (w *Writer) Start(id uint64) { w.append(appendHeader(w.control, uint8(frameStart), id, 0)) }

// Withdraw asks the acceptor, which has FeatureStarts, to refuse request id (NoSlot) if the request still waits for the
// application. All of the request was sent: see Unsent.
func (w *Writer) Withdraw(id uint64) { w.append(appendHeader(w.control, uint8(frameWithdraw), id, 0)) }

// GoAway announces that requests above last are not processed.
func (w *Writer) GoAway(last uint64, why Reason) {
	w.append(append(appendHeader(w.control, uint8(frameGoAway), last, 1), byte(why)))
}

func (w *Writer) append(control []byte) {
	if w.state != writerClosed {
		w.control = control
	}
}

// Ping requests a Pong(n). Only the last unsent one is kept.
func (w *Writer) Ping(n uint64) { w.slots.ping, w.slots.hasPing = n, true }

// Pong responds to a Ping. Only the last unsent one is kept.
func (w *Writer) Pong(n uint64) { w.slots.pong, w.slots.hasPong = n, true }

// Credit grants n more bytes of DATA. Small grants leave with other frames: see Ready.
func (w *Writer) Credit(n uint32) { w.slots.credit += n }

// Load reports the state of the service. Only the last unsent one is kept.
func (w *Writer) Load(l Load) { w.slots.load, w.slots.hasLoad = l, true }

// Probe asks an acceptor that has FeatureProbes for its load.
func (w *Writer) Probe() { w.append(appendHeader(w.control, uint8(frameProbe), 0, 0)) }

// Answer responds to PROBE. It takes the place of a Load that has not left, and only the last unsent load is kept.
func (w *Writer) Answer(l Load) {
	w.Load(l)
	w.slots.answers = true
}
