package http2

import "github.com/remora-proxy/remora/protocol"

// messages sends messages, whole or in pieces, by the writer, and tells the handler how far they are.
type messages struct{ *Conn }

// events makes the calls that are due. What the handler sends in them goes along.
func (m *messages) events() {
	for i := 0; i < len(m.w.events); i++ {
		st := m.w.events[i]
		st.flags &^= listed
		if st.id == 0 {
			m.streams.recycle(st)
			continue
		}
		due := st.flags & (eventSent | eventWritable)
		st.flags &^= due
		switch {
		case due&eventSent != 0:
			st.flags |= reported
			if m.handler.OnSent(st); m.usable() && st.id != 0 && st.is(discard) && !st.Ended() {
				m.streams.resetStream(st, NoError) // the rest of the request has no use
			}
		case due != 0:
			m.handler.OnWritable(st)
		}
		if !m.usable() {
			return
		}
		m.streams.endIfDone(st)
	}
	clear(m.w.events)
	m.w.events = m.w.events[:0]
}

// open begins the stream of a request of ours, or returns nil.
func (m *messages) open() *Stream {
	if m.MayOpen() == 0 {
		return nil
	}
	st := m.streams.begin(m.streams.nextID())
	st.recv, st.window = m.acks.window(), m.w.initial
	return st
}

func (m *messages) request(req *protocol.Request, scheme string, owner Releaser) *Stream {
	st := m.open()
	if st == nil {
		return nil
	}
	length, flags := int64(-1), uint8(0)
	switch {
	case len(req.Trailers) > 0:
	case len(req.Body) > 0 || protocol.DefinesContent(req.Method):
		length = int64(len(req.Body))
	}
	if len(req.Trailers) == 0 && len(req.Body) == 0 {
		flags = flagEndStream
	}
	if req.Batch {
		st.flags |= isBatch
	}
	m.w.requestHead(st, req, scheme, length, flags)
	m.rest(st, req.Body, req.Trailers, owner, flags)
	return st
}

// rest sends what follows a head with these flags.
func (m *messages) rest(st *Stream, body []byte, trailers []protocol.Header, owner Releaser, flags uint8) {
	st.flags |= headSent
	if flags&flagEndStream != 0 {
		st.owner = owner
		m.w.ended(st)
		return
	}
	m.w.whole(st, body, trailers, owner)
}

func (m *messages) respond(st *Stream, res *protocol.Response, owner Releaser) {
	if !m.maySend(st) || st.is(headSent) {
		if owner != nil {
			owner.Release()
		}
		return
	}
	body, trailers, length, flags := res.Body, res.Trailers, int64(-1), uint8(0)
	switch {
	case st.is(toHead) || res.Status == 304:
		if length = res.DeclaredLength; length < 0 && len(body) > 0 {
			length = int64(len(body)) // made by the proxy, such as an error response to a HEAD
		}
		body, trailers = nil, nil
	case res.Status == 204:
		body, trailers = nil, nil
	case len(trailers) == 0:
		length = int64(len(body))
	}
	if len(trailers) == 0 && len(body) == 0 {
		flags = flagEndStream
	}
	if res.Batch {
		st.flags |= isBatch
	}
	m.w.responseHead(st, res, length, flags)
	m.rest(st, body, trailers, owner, flags)
}

// maySend reports whether our side of st has not ended.
func (m *messages) maySend(st *Stream) bool {
	return st.id != 0 && m.usable() && !st.localEnded() && !st.is(ending)
}

func (m *messages) requestHead(req *protocol.Request, scheme string, length int64, wait bool) *Stream {
	st := m.open()
	if st == nil {
		return nil
	}
	if wait {
		st.flags |= expects
	}
	if req.Batch {
		st.flags |= isBatch
	}
	st.flags |= headSent
	m.w.requestHead(st, req, scheme, length, 0)
	return st
}

func (m *messages) responseHead(st *Stream, res *protocol.Response) {
	if !m.maySend(st) || st.is(headSent) {
		return
	}
	if res.Batch {
		st.flags |= isBatch
	}
	st.flags |= headSent
	m.w.responseHead(st, res, res.DeclaredLength, 0)
}

func (m *messages) interim(st *Stream, res *protocol.Response) {
	if !m.maySend(st) || st.is(headSent) {
		return
	}
	if res.Status == 100 {
		st.flags &^= expects
	}
	m.w.responseHead(st, res, -1, 0)
}

func (m *messages) keep(st *Stream) {
	if st.id != 0 && m.usable() && st.owner == nil && st.buf == nil && len(st.data) > 0 {
		m.w.own(st)
	}
}

func (m *messages) send(st *Stream, b []byte) (n int) {
	if !m.maySend(st) || !st.is(headSent) {
		return 0
	}
	return m.w.piece(st, b)
}

func (m *messages) finish(st *Stream, trailers []protocol.Header) {
	if m.maySend(st) && st.is(headSent) {
		m.w.end(st, trailers)
	}
}
