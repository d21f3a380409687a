package link

import (
	"bytes"
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
	for size, first := from, true; w.data.ready() && (first || size < limit); first = false {
		var body []byte
		dst, body = w.data.appendFrame(dst, w.maxData)
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
func (w *Writer) Sent() { w.data.sent() }

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
	return w.messages.take(w.controls.take(dst), limit, w.onFirstFrame)
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

// Ready reports whether Gather has frames that are worth a write. Credit alone is not, if it
// is less than a quarter of the window: it leaves with the next frames, and the peer still has
// three quarters.
func (w *Writer) Ready() bool {
	if w.greets() {
		return true
	}
	return w.state == writerOpen &&
		(w.messages.live > 0 || w.controls.urgent(w.own.Window/4) || w.defined() > 0 || w.data.ready())
}
