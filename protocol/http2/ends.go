package http2

// A stream ends once, by endStream. These lead there:
//
//	method          why                                        peer gets   handler gets     counts in Floods
//	endIfDone       both sides have ended                                  OnSent before
//	Reset           the handler wants no more of it            RST_STREAM
//	resetUncounted  there is no memory for its head            RST_STREAM  OnReset
//	resetForError   the peer made a mistake on it              RST_STREAM  OnReset          Provoked
//	resetHead       the peer made a mistake with its HEADERS   RST_STREAM  OnReset, if it   Provoked
//	                                                                       knows the stream
//	rstStream       the peer has reset it                                  OnReset          Resets
//	goodbye         the peer has not processed it                          OnReset          Others
//
// A stream that never began gets a RST_STREAM by resetIDForError, or by queueReset alone.

// endStream ends st: it leaves the table and releases its memory. st may be used until the next call
// of the loop that handles events, or of Output.
func (c *Conn) endStream(st *Stream) {
	c.streams.remove(st)
	c.w.release(st)
	c.reader.forget(st)
	st.id, st.Owner = 0, nil
	if !st.is(listed) {
		c.streams.recycle(st)
	}
}

// endIfDone ends st if both sides have ended and OnSent was called.
func (c *Conn) endIfDone(st *Stream) {
	if st.state == streamClosed && st.is(reported) && st.id != 0 {
		c.floods.requests++
		c.streams.ended.add(st.id, endedMemory)
		c.endStream(st)
	}
}

// Reset ends st with RST_STREAM. st is over; its owner is released; OnReset is not called. What
// still arrives of it is dropped. It does nothing if st is over.
func (c *Conn) Reset(st *Stream, code Code) {
	if st.id == 0 {
		return
	}
	if c.usable() {
		c.queueReset(st.id, code)
	}
	if st.is(reported) && !c.client { // the response was complete before the request
		c.floods.requests++
	}
	c.endStream(st)
}

// resetUncounted resets st, and tells the handler why. Nothing counts: it may be no fault of the peer.
func (c *Conn) resetUncounted(st *Stream, why *Error) {
	c.queueReset(st.id, why.Code)
	c.endByReset(st, why.Code, why)
}

// resetForError resets st because of an error of the peer.
func (c *Conn) resetForError(st *Stream, why *Error) {
	if c.count(floodProvoked); c.usable() {
		c.resetUncounted(st, why)
	}
}

// resetIDForError is resetForError for a stream that the handler does not know.
func (c *Conn) resetIDForError(id uint32, why *Error) {
	if c.count(floodProvoked); c.usable() {
		c.queueReset(id, why.Code)
	}
}

// queueReset queues a RST_STREAM.
func (c *Conn) queueReset(id uint32, code Code) {
	c.streams.resets.add(id, resetMemory)
	c.w.out = appendRSTStream(c.w.out, id, code)
	c.w.control += frameHead + 4
}

// endByReset tells the handler that st is over, which may also close c meanwhile.
func (c *Conn) endByReset(st *Stream, code Code, why *Error) {
	id := st.id
	c.handler.OnReset(st, code, why)
	if st.id == id && c.state != connClosed {
		c.endStream(st)
	}
}
