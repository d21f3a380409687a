package http2

import "github.com/remora-proxy/remora/protocol"

// Output returns the frames to write now: all control frames and HEADERS, and DATA as the
// windows allow, until there are about max bytes. The memory belongs to c and is valid until the
// next call of a method of c. nil: there is nothing.
func (c *Conn) Output(max int) []byte {
	if c.state == connClosed {
		return nil
	}
	w := &c.w
	if c.usable() {
		w.send(max)
		c.events()
	}
	c.floods.onData(w.frames, w.sent)
	out := w.out
	w.frames, w.sent, w.control, w.tailEnd = 0, 0, 0, 0
	if w.out = out[:0]; cap(out) > keepOutput {
		w.out = nil
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// events makes the calls that are due. What the handler sends in them goes along.
func (c *Conn) events() {
	for i := 0; i < len(c.w.events); i++ {
		st := c.w.events[i]
		st.flags &^= listed
		if st.id == 0 {
			c.streams.recycle(st)
			continue
		}
		due := st.flags & (eventSent | eventWritable)
		st.flags &^= due
		switch {
		case due&eventSent != 0:
			st.flags |= reported
			if c.handler.OnSent(st); c.usable() && st.id != 0 && st.is(discard) && !st.Ended() {
				c.Reset(st, NoError) // the rest of the request has no use
			}
		case due != 0:
			c.handler.OnWritable(st)
		}
		if !c.usable() {
			return
		}
		c.streams.endIfDone(st)
	}
	clear(c.w.events)
	c.w.events = c.w.events[:0]
}

// Ready reports whether Output would return something, or make a call.
func (c *Conn) Ready() bool {
	switch c.state {
	case connFailed:
		return len(c.w.out) > 0
	case connClosed:
		return false
	}
	return c.w.ready()
}

// openStream begins the stream of a request of ours, or returns nil.
func (c *Conn) openStream() *Stream {
	if c.MayOpen() == 0 {
		return nil
	}
	st := c.streams.begin(c.streams.nextID())
	st.recv, st.window = c.acks.window(), c.w.initial
	return st
}

// Request sends a whole request and returns its stream; nil if MayOpen returns 0, and then owner
// is not released. The head is encoded at once. Body and Trailers are kept until they are sent:
// then owner is released, as it is when the stream is over. With a nil owner the caller keeps the
// memory until the stream is over, or OnSent.
//
// Fields of a connection are left out. A Content-Length is added if there is a body, no trailers,
// and the content is not gRPC. `te: trailers` must be among the Headers where it is wanted.
func (c *Conn) Request(req *protocol.Request, scheme string, owner Releaser) *Stream {
	st := c.openStream()
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
	c.w.requestHead(st, req, scheme, length, flags)
	c.message(st, req.Body, req.Trailers, owner, flags)
	return st
}

// message sends what follows a head with these flags.
func (c *Conn) message(st *Stream, body []byte, trailers []protocol.Header, owner Releaser, flags uint8) {
	st.flags |= headSent
	if flags&flagEndStream != 0 {
		st.owner = owner
		c.w.ended(st)
		return
	}
	c.w.whole(st, body, trailers, owner)
}

// Respond sends the whole response of st, to a request with HEAD without its body. It may not
// follow ResponseHead or Respond. Ownership is as in Request.
func (c *Conn) Respond(st *Stream, res *protocol.Response, owner Releaser) {
	if !c.maySend(st) || st.is(headSent) {
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
	c.w.responseHead(st, res, length, flags)
	c.message(st, body, trailers, owner, flags)
}

// maySend reports whether our side of st has not ended.
func (c *Conn) maySend(st *Stream) bool {
	return st.id != 0 && c.usable() && !st.localEnded() && !st.is(ending)
}

// RequestHead sends the head of a request whose body follows with Send and Finish. length is
// its declared length, or -1. wait says that the body waits for an interim response
// (Expect: 100-continue). It returns nil if MayOpen returns 0.
func (c *Conn) RequestHead(req *protocol.Request, scheme string, length int64, wait bool) *Stream {
	st := c.openStream()
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
	c.w.requestHead(st, req, scheme, length, 0)
	return st
}

// ResponseHead sends the head of a response whose body follows with Send and Finish; its
// DeclaredLength becomes the Content-Length unless negative.
func (c *Conn) ResponseHead(st *Stream, res *protocol.Response) {
	if !c.maySend(st) || st.is(headSent) {
		return
	}
	if res.Batch {
		st.flags |= isBatch
	}
	st.flags |= headSent
	c.w.responseHead(st, res, res.DeclaredLength, 0)
}

// Interim sends an interim response (1xx but 101), ahead of the final head. After the final head it
// does nothing.
func (c *Conn) Interim(st *Stream, res *protocol.Response) {
	if !c.maySend(st) || st.is(headSent) {
		return
	}
	if res.Status == 100 {
		st.flags &^= expects
	}
	c.w.responseHead(st, res, -1, 0)
}

// Send copies a piece of the body: as much as a bound for each stream allows. If n is less than
// len(b), OnWritable says when to go on.
func (c *Conn) Send(st *Stream, b []byte) (n int) {
	if !c.maySend(st) || !st.is(headSent) {
		return 0
	}
	return c.w.piece(st, b)
}

// Finish ends our side after what Send took. trailers may be empty; they are copied if needed.
func (c *Conn) Finish(st *Stream, trailers []protocol.Header) {
	if c.maySend(st) && st.is(headSent) {
		c.w.end(st, trailers)
	}
}
