package http2

import (
	"encoding/binary"

	"github.com/valyala/bytebufferpool"
)

// block is a header block in parts: HEADERS without END_HEADERS, and CONTINUATION frames.
type block struct {
	id            uint32                     // 0: there is none
	end           bool                       // the message ends with the block
	dependsOnSelf bool                       // the stream depends on itself
	frames        int                        // CONTINUATION frames
	buf           *bytebufferpool.ByteBuffer // nil if there is none
}

// headers handles a HEADERS frame.
func (c *Conn) headers(f frame, b []byte) {
	if f.id == 0 {
		c.fail(ErrStreamID)
		return
	}
	b, ok := padding(f, b)
	if !ok {
		c.fail(ErrPadding)
		return
	}
	self := false
	if f.has(flagPriority) {
		if len(b) < 5 {
			c.fail(ErrFrameSize)
			return
		}
		self = binary.BigEndian.Uint32(b)&maxID == f.id
		b = b[5:]
	}
	end := f.has(flagEndStream)
	if f.has(flagEndHeaders) {
		c.headerBlock(f.id, b, end, self)
		return
	}
	c.block.id, c.block.end, c.block.dependsOnSelf, c.block.frames = f.id, end, self, 0
	c.block.buf = c.opts.Buffers.Get(len(b))
	c.opts.Buffers.Append(c.block.buf, b, 0)
}

// continuation handles a CONTINUATION frame.
func (c *Conn) continuation(f frame, b []byte) {
	p := &c.block
	if p.id == 0 || p.id != f.id {
		c.fail(ErrInterleaved)
		return
	}
	p.frames++
	// A block between the limit and twice that is decoded, so that only its stream is refused.
	if p.frames > c.floods.continuations || len(p.buf.B)+len(b) > 2*c.opts.Limits.Header+blockExtra {
		c.fail(ErrContinuations)
		return
	}
	c.opts.Buffers.Append(p.buf, b, 0)
	if !f.has(flagEndHeaders) {
		return
	}
	whole := p.buf
	p.id, p.buf = 0, nil
	c.headerBlock(f.id, whole.B, p.end, p.dependsOnSelf)
	c.opts.Buffers.Put(whole)
}

// headerBlock handles a complete header block. It is decoded in any case, as it may change the
// table.
func (c *Conn) headerBlock(id uint32, b []byte, end, self bool) {
	st, why := c.streamOfHead(id, end)
	if why == nil && self {
		why = ErrDependency
	}
	switch {
	case !c.usable():
	case why != nil:
		if c.ignore(b); c.usable() {
			c.refuseHead(st, id, why)
		}
	case st == nil:
		c.ignore(b)
	case st.is(discard) && st.is(headReceived): // trailers of a message that nobody wants
		if c.ignore(b); end && c.usable() {
			st.endRemote()
			c.endIfDone(st)
		}
	case st.is(headReceived):
		c.trailers(st, b)
	case c.client:
		c.response(st, b, end)
	default:
		c.request(st, b, end)
	}
	c.head.forget()
}

// streamOfHead returns the stream of a header block, or why the block is refused. If both results are nil, the block is
// ignored.
func (c *Conn) streamOfHead(id uint32, end bool) (*Stream, *Error) {
	st := c.streams.get(id)
	switch {
	case st == nil && c.client:
		c.lateHeaders(id)
	case st == nil:
		return c.begin(id)
	case st.Ended():
		return st, ErrHalfClosed
	case st.is(headReceived) && !end:
		return st, ErrTrailers
	}
	return st, nil
}

// refuseHead resets stream id, whose header block is refused. st is nil if the stream has not begun. The handler of a
// server does not know a stream before its first head.
func (c *Conn) refuseHead(st *Stream, id uint32, why *Error) {
	if st != nil && (c.client || st.is(headReceived)) {
		c.refuse(st, why)
		return
	}
	c.refuseID(id, why)
	if st != nil {
		c.over(st)
	}
}

// begin begins the stream of a new request. If both results are nil, the head is ignored.
func (c *Conn) begin(id uint32) (*Stream, *Error) {
	if !c.streams.isIdle(id) || id&1 == 0 {
		c.lateHeaders(id)
		return nil, nil
	}
	c.streams.latest = id
	switch {
	case c.goodbye.drops(id):
		return nil, nil
	case c.streams.n >= c.opts.streams():
		if c.acks.settingsUnread() { // the peer does not know the limit yet
			if c.count(floodResets); c.usable() { // nor will it, if it does not acknowledge SETTINGS
				c.rst(id, RefusedStream)
			}
			return nil, nil
		}
		return nil, ErrTooMany
	}
	st := c.streams.begin(id)
	st.recv, st.window, st.begun = c.acks.window(), c.w.initial, c.floods.now
	return st, nil
}

// lateHeaders handles HEADERS on a stream that is over, or can't begin.
func (c *Conn) lateHeaders(id uint32) {
	switch t := &c.streams; {
	case t.resets.has(id), c.goodbye.drops(id) && !c.streams.isIdle(id):
		c.count(floodOthers)
	case t.ended.has(id):
		c.fail(ErrEnded)
	case !c.streams.isIdle(id) && id <= t.resets.evicted:
		c.count(floodOthers)
	default:
		c.fail(ErrStreamID)
	}
}

// ignore decodes a block whose fields nobody wants.
func (c *Conn) ignore(b []byte) {
	c.head.begin(headIgnored, &c.opts.Limits, nil)
	(*headMemory)(c).decode(nil, b, nil)
}

func (c *Conn) request(st *Stream, b []byte, end bool) {
	req, buf := c.requests.NewRequest(st)
	if req == nil {
		c.ignore(b)
		if c.usable() {
			c.Reset(st, RefusedStream)
		}
		return
	}
	req.Reset()
	h := &c.head
	h.begin(headRequest, &c.opts.Limits, req.Headers)
	(*headMemory)(c).decode(st, b, buf)
	req.Headers = h.headers
	if !c.usable() {
		return
	}
	if h.bad != nil {
		c.refuse(st, h.bad)
		return
	}
	st.flags |= headReceived
	if h.over {
		if st.flags |= discard; end {
			st.endRemote()
		}
		if h.noRoom {
			c.requests.OnNoRoom(st)
		} else {
			c.requests.OnOversize(st)
		}
		c.afterHead(st, end)
		return
	}
	req.Method, req.Path, req.Authority = h.method, h.path, h.authority
	switch string(h.method) {
	case "HEAD":
		st.flags |= toHead
	case "CONNECT":
		st.flags |= isConnect
	}
	if st.length = h.length; end && h.length > 0 {
		c.refuse(st, ErrLength)
		return
	}
	if h.expects && !end {
		st.flags |= expects
	}
	if end {
		st.endRemote()
	}
	c.requests.OnRequest(st, end)
	c.afterHead(st, end)
}

func (c *Conn) afterHead(st *Stream, end bool) {
	if end && c.usable() {
		c.endIfDone(st)
	}
}

func (c *Conn) response(st *Stream, b []byte, end bool) {
	// Interim responses are rare, so the memory of a final response is asked for before the head is decoded.
	res, buf := c.responses.NewResponse(st)
	if res == nil {
		c.ignore(b)
		if c.usable() {
			c.Reset(st, Cancel)
		}
		return
	}
	res.Reset()
	h := &c.head
	h.begin(headResponse, &c.opts.Limits, res.Headers)
	(*headMemory)(c).decode(st, b, buf)
	res.Headers = h.headers
	switch {
	case !c.usable():
		return
	case h.bad != nil:
		c.refuse(st, h.bad)
		return
	case h.noRoom: // no fault of the peer
		c.giveUp(st, ErrNoRoom)
		return
	case h.over:
		c.refuse(st, ErrHeadSize)
		return
	case h.status < 200:
		if st.interim++; end || h.status == 101 || st.interim > maxInterim {
			c.refuse(st, ErrInterim)
			return
		}
		res.Status = h.status
		c.responses.OnInterim(st)
		return
	}
	res.Status, res.DeclaredLength = h.status, h.length
	st.length = h.length
	st.flags |= headReceived
	if h.status == 204 || h.status == 304 || st.is(toHead) {
		st.flags |= noContent
	} else if end && h.length > 0 {
		c.refuse(st, ErrLength)
		return
	}
	if end {
		st.endRemote()
	}
	c.responses.OnResponse(st, end)
	c.afterHead(st, end)
}

func (c *Conn) trailers(st *Stream, b []byte) {
	h := &c.head
	h.begin(headTrailers, &c.opts.Limits, c.fields[:0])
	buf := c.opts.Buffers.Get(len(b))
	(*headMemory)(c).decode(nil, b, buf)
	defer c.keepTrailers(buf)
	switch {
	case !c.usable():
		return
	case h.bad != nil:
		c.refuse(st, h.bad)
		return
	case h.over:
		c.refuse(st, ErrHeadSize)
		return
	case st.length >= 0 && !st.is(noContent) && st.got != st.length:
		c.refuse(st, ErrLength)
		return
	}
	st.endRemote()
	c.handler.OnTrailers(st, h.headers)
	c.afterHead(st, true)
}

// keepTrailers keeps the memory of trailers that were passed on, whose text is in buf.
func (c *Conn) keepTrailers(buf *bytebufferpool.ByteBuffer) {
	c.opts.Buffers.Put(buf)
	clear(c.head.headers)
	if c.fields = c.head.headers; cap(c.fields) > keepFields {
		c.fields = nil
	}
}
