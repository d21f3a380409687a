package http2

// data judges a DATA frame by its header; content is its length without padding. It returns the
// stream that gets the content, or nil if the content is skipped.
func (c *Conn) data(f frame, content int) *Stream {
	if f.id == 0 {
		c.fail(ErrStreamID)
		return nil
	}
	if f.length > c.recv {
		c.fail(ErrFlowControl)
		return nil
	}
	c.recv -= f.length
	c.giveBack(f.length)
	st := c.streams.get(f.id)
	if st == nil {
		c.lateData(f.id)
		return nil
	}
	end := f.has(flagEndStream)
	if content == 0 && !end {
		if c.count(floodEmptyData); !c.usable() {
			return nil
		}
	}
	var why *Error
	switch {
	case st.Ended():
		why = ErrHalfClosed
	case f.length > max(st.recv, 0): // an empty one needs no window
		why = ErrStreamFlow
	case !st.is(headReceived):
		why = ErrNoHead
	}
	if st.got += int64(content); why == nil {
		switch {
		case content > 0 && st.is(noContent),
			st.length >= 0 && !st.is(noContent) && (st.got > st.length || end && st.got != st.length):
			why = ErrLength
		}
	}
	if why != nil {
		c.resetForError(st, why)
		return nil
	}
	if content > 0 {
		c.floods.data++
	}
	st.recv -= f.length
	if padding := f.length - content; padding > 0 && !end {
		c.Consumed(st, padding)
	}
	return st
}

// paddedData handles a DATA frame with padding, which is complete.
func (c *Conn) paddedData(f frame, b []byte) {
	content, ok := padding(f, b)
	if !ok {
		c.fail(ErrPadding)
		return
	}
	end := f.has(flagEndStream)
	if st := c.data(f, len(content)); st != nil && (len(content) > 0 || end) {
		c.deliver(st, content, end)
	}
}

// deliver passes a piece of a body on.
func (c *Conn) deliver(st *Stream, b []byte, end bool) {
	if end {
		st.endRemote()
	}
	if !st.is(discard) {
		c.handler.OnData(st, b, end)
	}
	if end && c.usable() {
		c.endIfDone(st)
	}
}

// lateData handles DATA on a stream that is over, or has not begun.
func (c *Conn) lateData(id uint32) {
	switch t := &c.streams; {
	case c.streams.isIdle(id):
		c.fail(ErrIdle)
	case t.resets.has(id), id <= t.resets.evicted, c.goodbye.drops(id):
		c.count(floodOthers)
	default:
		c.fail(ErrEnded)
	}
}

// giveBack gives n bytes of the connection's window back: at a quarter of it, so that few frames
// carry much.
func (c *Conn) giveBack(n int) {
	if c.given += n; c.given >= c.opts.connWindow()/4 {
		c.w.out = appendWindowUpdate(c.w.out, 0, c.given)
		c.w.control += frameHead + 4
		c.recv += c.given
		c.given = 0
	}
}

// Consumed gives n bytes of the receive window of st back. It leaves once it is a quarter of the
// window. The Conn itself gives back the connection's window, and that for padding.
func (c *Conn) Consumed(st *Stream, n int) {
	if st.id == 0 || st.Ended() || !c.usable() {
		return
	}
	if st.given += n; st.given >= c.opts.window()/4 {
		c.w.out = appendWindowUpdate(c.w.out, st.id, st.given)
		st.recv += st.given
		st.given = 0
	}
}
