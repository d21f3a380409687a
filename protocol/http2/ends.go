package http2

import "encoding/binary"

// A stream ends once, by streams.end. These lead there:
//
//	method          why                                        peer gets   handler gets     counts in Floods
//	endIfDone       both sides have ended                                  OnSent before
//	resetStream     the handler wants no more of it            RST_STREAM
//	resetUncounted  there is no memory for its head            RST_STREAM  OnReset
//	resetForError   the peer made a mistake on it              RST_STREAM  OnReset          Provoked
//	resetHead       the peer made a mistake with its HEADERS   RST_STREAM  OnReset, if it   Provoked
//	                                                                       knows the stream
//	receiveReset    the peer has reset it                                  OnReset          Resets
//	goodbye         the peer has not processed it                          OnReset          Others
//
// A stream that never began gets a RST_STREAM by resetIDForError, or by queueReset alone.

// end ends st: it leaves the table and releases its memory. st may be used until the next call
// of the loop that handles events, or of Output.
func (t *streams) end(st *Stream) {
	t.remove(st)
	t.w.release(st)
	t.reader.forget(st)
	st.id, st.Owner = 0, nil
	if !st.is(listed) {
		t.recycle(st)
	}
}

// endIfDone ends st if both sides have ended and OnSent was called.
func (t *streams) endIfDone(st *Stream) {
	if st.state == streamClosed && st.is(reported) && st.id != 0 {
		t.floods.onRequest()
		t.ended.add(st.id, endedMemory)
		t.end(st)
	}
}

// resetStream is Conn.Reset.
func (t *streams) resetStream(st *Stream, code Code) {
	if st.id == 0 {
		return
	}
	if t.usable() {
		t.queueReset(st.id, code)
	}
	if st.is(reported) && !t.client { // the response was complete before the request
		t.floods.onRequest()
	}
	t.end(st)
}

// resetUncounted resets st, and tells the handler why. Nothing counts: it may be no fault of the peer.
func (t *streams) resetUncounted(st *Stream, why *Error) {
	t.queueReset(st.id, why.Code)
	t.endByReset(st, why.Code, why)
}

// resetForError resets st because of an error of the peer.
func (t *streams) resetForError(st *Stream, why *Error) {
	if t.count(floodProvoked); t.usable() {
		t.resetUncounted(st, why)
	}
}

// resetIDForError is resetForError for a stream that the handler does not know.
func (t *streams) resetIDForError(id uint32, why *Error) {
	if t.count(floodProvoked); t.usable() {
		t.queueReset(id, why.Code)
	}
}

// queueReset queues a RST_STREAM.
func (t *streams) queueReset(id uint32, code Code) {
	t.resets.add(id, resetMemory)
	t.w.resetStream(id, code)
}

// endByReset tells the handler that st is over, which may also close the connection meanwhile.
func (t *streams) endByReset(st *Stream, code Code, why *Error) {
	id := st.id
	t.handler.OnReset(st, code, why)
	if st.id == id && t.state != connClosed {
		t.end(st)
	}
}

// endByPeer ends st, of which the peer wants no more.
func (t *streams) endByPeer(st *Stream, code Code, why *Error) {
	t.ended.add(st.id, endedMemory)
	t.endByReset(st, code, why)
}

// receiveReset handles a RST_STREAM frame.
func (t *streams) receiveReset(f frame, b []byte) {
	switch {
	case f.id == 0:
		t.fail(ErrStreamID)
		return
	case len(b) != 4:
		t.fail(ErrFrameSize)
		return
	}
	st := t.get(f.id)
	if st == nil {
		if t.isIdle(f.id) {
			t.fail(ErrIdle)
		} else {
			t.count(floodOthers)
		}
		return
	}
	young := t.floods.now()-st.begun < rapid // st may be used again below
	t.endByPeer(st, Code(binary.BigEndian.Uint32(b)), nil)
	if young && !t.client { // each costs a request of ours there
		t.count(floodResets)
	}
}

// receivePriority checks a PRIORITY frame and ignores it (RFC 9113 section 5.3.2).
func (t *streams) receivePriority(f frame, b []byte) {
	switch {
	case f.id == 0:
		t.fail(ErrStreamID)
	case len(b) != 5:
		t.fail(ErrFrameSize)
	case binary.BigEndian.Uint32(b)&^(1<<31) == f.id:
		if st := t.get(f.id); st != nil {
			t.resetForError(st, ErrDependency)
		} else {
			t.fail(ErrDependency)
		}
	default:
		t.count(floodOthers)
	}
}
