package http2

// bodies checks the DATA of the peer, passes it on, and keeps the receive windows.
//
// Calls in: accept and deliver take a frame as it arrives, padded a complete one. consumed opens a window.
//
// Calls out: the handler gets each piece of a body. A stream may end.
type bodies struct {
	*Conn
	// given has the bytes of the connection's window that were received, and not yet given back. It stays below a quarter of the
	// window, so three quarters of the window are always open: more than the largest frame.
	given int
}

// reset prepares for a new connection.
func (d *bodies) reset(c *Conn) { *d = bodies{Conn: c} }

// sendWindow queues the connection's first WINDOW_UPDATE.
func (d *bodies) sendWindow() { d.w.openWindow(0, d.opts.connWindow()-defaultWindow) }

// accept judges a DATA frame by its header; content is its length without padding. It returns the
// stream that gets the content, or nil if the content is skipped.
func (d *bodies) accept(f frame, content int) *Stream {
	if f.id == 0 {
		d.fail(ErrStreamID)
		return nil
	}
	d.giveBack(f.length)
	st := d.streams.get(f.id)
	if st == nil {
		d.late(f.id)
		return nil
	}
	end := f.has(flagEndStream)
	if content == 0 && !end {
		if d.count(floodEmptyData); !d.usable() {
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
		d.streams.resetForError(st, why)
		return nil
	}
	if content > 0 {
		d.floods.onData(1, 0)
	}
	st.recv -= f.length
	if padding := f.length - content; padding > 0 && !end {
		d.consumed(st, padding)
	}
	return st
}

// padded handles a DATA frame with padding, which is complete.
func (d *bodies) padded(f frame, b []byte) {
	content, ok := padding(f, b)
	if !ok {
		d.fail(ErrPadding)
		return
	}
	end := f.has(flagEndStream)
	if st := d.accept(f, len(content)); st != nil && (len(content) > 0 || end) {
		d.deliver(st, content, end)
	}
}

// deliver passes a piece of a body on.
func (d *bodies) deliver(st *Stream, b []byte, end bool) {
	if end {
		st.endRemote()
	}
	if !st.is(discard) {
		d.handler.OnData(st, b, end)
	}
	if end && d.usable() {
		d.streams.endIfDone(st)
	}
}

// late handles DATA on a stream that is over, or has not begun.
func (d *bodies) late(id uint32) {
	switch t := &d.streams; {
	case t.isIdle(id):
		d.fail(ErrIdle)
	case t.wasReset(id), t.mayBeReset(id), d.goodbye.drops(id):
		d.count(floodOthers)
	default:
		d.fail(ErrEnded)
	}
}

// giveBack gives n bytes of the connection's window back: at a quarter of it, so that few frames
// carry much.
func (d *bodies) giveBack(n int) {
	if d.given += n; d.given >= d.opts.connWindow()/4 {
		d.w.reopenWindow(d.given)
		d.given = 0
	}
}

// consumed gives n bytes of the receive window of st back. They are announced once they are a quarter of it.
func (d *bodies) consumed(st *Stream, n int) {
	if st.id == 0 || st.Ended() || !d.usable() {
		return
	}
	if st.given += n; st.given >= d.opts.window()/4 {
		d.w.openWindow(st.id, st.given)
		st.recv += st.given
		st.given = 0
	}
}
