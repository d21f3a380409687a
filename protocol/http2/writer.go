package http2

import (
	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
)

// writer sends DATA within the send windows. What short messages have of DATA goes to the output at once. Other DATA waits
// with its streams: those whose window is open are in a ring, and Output takes from them in turn.
type writer struct {
	output
	buffers *protocol.Buffers

	window  int // bytes of DATA that the peer accepts on the connection
	initial int // the same for a new stream

	sending ring // streams that have DATA and an open window, without batch
	batch   ring // likewise, streams of batch messages
	turn    int  // frames sent while both rings had streams

	held   int       // bytes of DATA that wait
	kept   int       // of these, bytes that piece has copied
	frames int       // DATA frames sent since the latest Output
	sent   int       // bytes of these
	events []*Stream // streams for which OnSent or OnWritable is due

	tailOf          uint32 // the stream of the DATA frame out[tailAt:tailEnd], to end it there
	tailAt, tailEnd int
}

func (w *writer) reset(o *Options) {
	w.out, w.events = w.out[:0], w.events[:0]
	w.enc.Reset()
	*w = writer{output: output{out: w.out, enc: w.enc}, buffers: o.Buffers, events: w.events, window: defaultWindow, initial: defaultWindow}
}

// take returns the bytes to write now, which are valid until the next call, and counts anew.
func (w *writer) take() []byte {
	out := w.out
	w.frames, w.sent, w.control, w.tailEnd = 0, 0, 0, 0
	if w.out = out[:0]; cap(out) > keepOutput {
		w.out = nil
	}
	return out
}

// close drops what was not sent.
func (w *writer) close() {
	clear(w.events)
	w.out, w.events, w.sending, w.batch, w.held, w.kept, w.control = w.out[:0], w.events[:0], ring{}, ring{}, 0, 0, 0
	if cap(w.out) > keepOutput {
		w.out = nil
	}
}

// setInitial handles SETTINGS_INITIAL_WINDOW_SIZE, which changes the windows of all streams, even
// to below 0 (RFC 9113 section 6.9.2).
func (w *writer) setInitial(n int, all []*Stream) *Error {
	change := n - w.initial
	if w.initial = n; change == 0 {
		return nil
	}
	for _, st := range all {
		if st == nil {
			continue
		}
		if st.window += change; st.window > maxWindow {
			return ErrOverflow
		}
		if w.schedule(st); st.window <= 0 {
			w.unschedule(st)
		}
	}
	return nil
}

// widen adds n bytes to the window of the connection.
func (w *writer) widen(n int) *Error {
	switch {
	case n == 0:
		return ErrIncrement
	case w.window > maxWindow-n:
		return ErrOverflow
	}
	w.window += n
	return nil
}

// widenStream adds n bytes to the window of st.
func (w *writer) widenStream(st *Stream, n int) *Error {
	switch {
	case n == 0:
		return ErrIncrement
	case st.window > maxWindow-n:
		return ErrOverflow
	}
	st.window += n
	w.schedule(st)
	return nil
}

func (w *writer) ringOf(st *Stream) *ring {
	if st.is(isBatch) {
		return &w.batch
	}
	return &w.sending
}

// schedule puts st into its ring if it can send.
func (w *writer) schedule(st *Stream) {
	if len(st.data) > 0 && st.window > 0 && !st.is(inRing) {
		st.flags |= inRing
		w.ringOf(st).add(st)
	}
}

// unschedule takes st out of its ring.
func (w *writer) unschedule(st *Stream) {
	if st.is(inRing) {
		st.flags &^= inRing
		w.ringOf(st).remove(st)
	}
}

// release gives the memory of st back.
func (w *writer) release(st *Stream) {
	w.unschedule(st)
	w.held -= len(st.data)
	if st.buf != nil {
		w.kept -= len(st.data)
	}
	w.held -= st.copied
	w.kept -= st.copied
	st.data, st.trailers, st.copied = nil, nil, 0
	w.buffers.Release(&st.buf)
	if o := st.owner; o != nil {
		st.owner = nil
		o.Release()
	}
}

// event makes an event due.
func (w *writer) event(st *Stream, e streamFlags) {
	if st.flags |= e; !st.is(listed) {
		st.flags |= listed
		w.events = append(w.events, st)
	}
}

// ready reports whether there is something to send.
func (w *writer) ready() bool {
	return len(w.out) > 0 || len(w.events) > 0 || w.window > 0 && w.sending.n+w.batch.n > 0
}

// idle reports whether no stream waits for its turn.
func (w *writer) idle() bool { return w.sending.n+w.batch.n == 0 }

// next returns the ring whose turn it is.
func (w *writer) next() *ring {
	switch {
	case w.batch.n == 0:
		return &w.sending
	case w.sending.n == 0:
		return &w.batch
	}
	if w.turn++; w.turn%batchFrames == 0 {
		return &w.batch
	}
	return &w.sending
}

// send appends DATA of the streams in turn, until out has max bytes.
func (w *writer) send(max int) {
	for !w.idle() && w.window > 0 && len(w.out) < max {
		r := w.next()
		st := r.next
		r.next = st.next
		w.emit(st, min(len(st.data), maxFrame, st.window, w.window))
	}
}

// emit appends n bytes of DATA of a stream, and its end behind the last.
func (w *writer) emit(st *Stream, n int) {
	last := n == len(st.data) && st.is(ending)
	w.frame(st, st.data[:n], last && len(st.trailers) == 0)
	w.held -= n
	if st.buf != nil {
		w.kept -= n
	}
	if st.data = st.data[n:]; last {
		if len(st.trailers) > 0 {
			w.fields(st, st.trailers)
		}
		w.ended(st)
		return
	}
	if len(st.data) == 0 || st.window <= 0 {
		w.unschedule(st)
	}
	if len(st.data) == 0 && st.buf != nil {
		st.buf.B = st.buf.B[:0]
	}
	if st.is(blocked) && len(st.data) <= sendBound/2 {
		st.flags &^= blocked
		w.event(st, eventWritable)
	}
}

// frame appends one DATA frame.
func (w *writer) frame(st *Stream, b []byte, end bool) {
	var flags uint8
	if end {
		flags = flagEndStream
	}
	w.tailOf, w.tailAt = st.id, len(w.out)
	w.out = append(appendFrame(w.out, len(b), frameData, flags, st.id), b...)
	w.tailEnd = len(w.out)
	st.window -= len(b)
	w.window -= len(b)
	w.frames++
	w.sent += len(b)
}

// fields appends HEADERS with trailers.
func (w *writer) fields(st *Stream, hs []protocol.Header) {
	at := w.begin(st, flagEndStream)
	for i := range hs {
		w.field(&hs[i])
	}
	w.finish(at)
}

// ended ends our side of st.
func (w *writer) ended(st *Stream) {
	st.endLocal()
	w.release(st)
	w.event(st, eventSent)
}

// whole sends the rest of a message whose HEADERS, without END_STREAM, are in out.
func (w *writer) whole(st *Stream, body []byte, trailers []protocol.Header, owner Releaser) {
	st.flags |= ending
	st.owner = owner
	n := len(body)
	if n == 0 || n <= maxFrame && len(w.out) < directOutput && n <= min(w.window, st.window) &&
		(w.idle() || n <= smallBody && !st.is(isBatch)) {
		if n > 0 || len(trailers) == 0 {
			w.frame(st, body, len(trailers) == 0)
		}
		if len(trailers) > 0 {
			w.fields(st, trailers)
		}
		w.ended(st)
		return
	}
	st.data, st.trailers = body, trailers
	w.held += n
	w.schedule(st)
}

// piece copies a piece of a body and returns how much it took.
func (w *writer) piece(st *Stream, b []byte) (n int) {
	if len(st.data) == 0 && w.idle() {
		for len(w.out) < directOutput && n < len(b) && st.window > 0 && w.window > 0 {
			k := min(len(b)-n, maxFrame, st.window, w.window)
			w.frame(st, b[n:n+k], false)
			n += k
		}
	}
	k := min(len(b)-n, sendBound-len(st.data))
	if k > 0 {
		w.keep(st, b[n:n+k])
		n += k
		w.schedule(st)
	}
	if n < len(b) {
		st.flags |= blocked
	}
	return n
}

// keep appends b to the data of st.
func (w *writer) keep(st *Stream, b []byte) {
	if st.buf == nil {
		st.buf = w.buffers.Get(len(b))
	}
	if from := len(st.buf.B) - len(st.data); from > 0 && from >= len(st.data) {
		st.buf.B = st.buf.B[:copy(st.buf.B, st.data)] // the part that was sent goes
	}
	unsent := len(st.data)
	w.buffers.Append(st.buf, b, 0)
	st.data = st.buf.B[len(st.buf.B)-unsent-len(b):]
	w.held += len(b)
	w.kept += len(b)
}

// own makes the unsent part of a message the writer's, in memory of its own.
func (w *writer) own(st *Stream) {
	rest := st.data
	w.held -= len(rest)
	st.data = nil
	w.keep(st, rest)
	w.keepTrailers(st, st.trailers)
}

// end ends a message that was sent in pieces.
func (w *writer) end(st *Stream, trailers []protocol.Header) {
	if len(st.data) > 0 {
		st.flags |= ending
		w.keepTrailers(st, trailers)
		return
	}
	switch {
	case len(trailers) > 0:
		w.fields(st, trailers)
	case w.tailOf == st.id && w.tailEnd == len(w.out) && w.tailEnd > 0:
		w.out[w.tailAt+4] |= flagEndStream
	default:
		w.frame(st, nil, true)
	}
	w.ended(st)
}

// keepTrailers copies trailers that wait for the data of st.
func (w *writer) keepTrailers(st *Stream, hs []protocol.Header) {
	b := &bytebufferpool.ByteBuffer{B: make([]byte, 0, protocol.TextOf(hs))}
	st.trailers = protocol.CopyFields(make([]protocol.Header, 0, len(hs)), hs, b)
	st.copied = len(b.B) + protocol.HeldBy(nil, nil, nil, st.trailers)
	w.held += st.copied
	w.kept += st.copied
}

// ring holds the streams that send DATA in turn.
type ring struct {
	next *Stream // the stream whose turn it is
	n    int
}

// add puts s behind all others.
func (r *ring) add(s *Stream) {
	r.n++
	if r.next == nil {
		s.prev, s.next = s, s
		r.next = s
		return
	}
	s.prev, s.next = r.next.prev, r.next
	s.prev.next, s.next.prev = s, s
}

func (r *ring) remove(s *Stream) {
	r.n--
	if s.next == s {
		r.next = nil
	} else {
		s.prev.next, s.next.prev = s.next, s.prev
		if r.next == s {
			r.next = s.next
		}
	}
	s.prev, s.next = nil, nil
}
