package http2

import "github.com/valyala/bytebufferpool"

// input is where Feed is: between frames, in a frame that is kept until it is complete, or in
// the payload of a frame that is passed on as it arrives.
type input struct {
	partial *bytebufferpool.ByteBuffer // the start of a preface or frame; nil between frames
	need    int                        // the length of that frame; 0 while its header is incomplete

	left int     // bytes of payload still to pass on
	sink *Stream // to whom; nil skips them
	end  bool    // the stream's message ends behind them
}

// Feed takes received bytes. After an error, always an *Error, a GOAWAY is queued: the caller
// writes Output, calls Close, and closes the connection. Later calls return the same error.
func (c *Conn) Feed(b []byte) error {
	for len(b) > 0 && c.usable() {
		switch {
		case c.in.left > 0:
			b = c.payload(b)
		case c.in.partial != nil:
			b = c.resume(b)
		case c.state == connPreface:
			b = c.preface(b)
		default:
			b = c.next(b)
		}
	}
	if c.err != nil {
		return c.err
	}
	return nil
}

// preface reads the client's preface; a wrong byte fails at once.
func (c *Conn) preface(b []byte) []byte {
	n := min(len(b), len(Preface))
	if string(b[:n]) != Preface[:n] {
		c.fail(ErrPreface)
		return nil
	}
	if n < len(Preface) {
		c.save(b)
		return nil
	}
	c.become(connSettings)
	return b[n:]
}

// next reads the frame at the start of b.
func (c *Conn) next(b []byte) []byte {
	if len(b) < frameHead {
		c.save(b)
		return nil
	}
	f := parseFrame(b)
	if c.streamed(f) {
		return b[frameHead:]
	}
	if !c.usable() {
		return nil
	}
	whole := frameHead + f.length
	if len(b) < whole {
		c.in.need = whole
		c.save(b)
		return nil
	}
	c.dispatch(f, b[frameHead:whole:whole])
	return b[whole:]
}

// resume extends a partial preface or frame: to its header first, then with all that is missing.
func (c *Conn) resume(b []byte) []byte {
	need := c.in.need
	if need == 0 {
		need = frameHead
		if c.state == connPreface {
			need = len(Preface)
		}
	}
	n := min(len(b), need-len(c.in.partial.B))
	c.save(b[:n])
	b = b[n:]
	whole := c.in.partial
	if c.state == connPreface {
		c.in.partial = nil
		c.preface(whole.B)
		c.opts.Buffers.Put(whole)
		return b
	}
	if len(whole.B) < need {
		return b
	}
	f := parseFrame(whole.B)
	if c.in.need == 0 {
		if c.streamed(f) || !c.usable() {
			c.in.drop(c.opts.Buffers)
			return b
		}
		if c.in.need = frameHead + f.length; f.length > 0 {
			return b
		}
	}
	c.in.partial, c.in.need = nil, 0
	c.dispatch(f, whole.B[frameHead:])
	c.opts.Buffers.Put(whole)
	return b
}

func (c *Conn) save(b []byte) {
	if c.in.partial == nil {
		c.in.partial = c.opts.Buffers.Get(0)
	}
	c.opts.Buffers.Append(c.in.partial, b, c.in.need)
}

func (in *input) drop(buffers bufferPool) {
	if in.partial != nil {
		buffers.Put(in.partial)
	}
	*in = input{left: in.left, sink: in.sink, end: in.end}
}

// bufferPool is what takes buffers back.
type bufferPool interface {
	Put(*bytebufferpool.ByteBuffer)
}

// streamed judges the header of a frame. It begins a frame whose payload is passed on, or
// skipped, as it arrives, and returns true then.
func (c *Conn) streamed(f frame) bool {
	switch {
	case f.length > maxFrame:
		c.fail(ErrFrameSize)
	case c.state == connSettings && (f.typ != frameSettings || f.has(flagAck)):
		c.fail(ErrPreface)
	case c.heads.excludes(f):
		c.fail(ErrInterleaved)
	case f.typ >= frameTypes:
		c.count(floodOthers)
		c.in.left, c.in.sink, c.in.end = f.length, nil, false
		return true
	case f.typ == frameData && !f.has(flagPadded):
		c.in.left, c.in.sink, c.in.end = f.length, nil, false
		st := c.data(f, f.length)
		if st == nil {
			return true
		}
		if f.length > 0 {
			c.in.sink, c.in.end = st, f.has(flagEndStream)
			return true
		}
		if f.has(flagEndStream) {
			c.deliver(st, nil, true)
		}
		return true
	}
	return false
}

// count counts abuse, which may end the connection.
func (c *Conn) count(k flood) {
	if why := c.floods.add(k); why != nil {
		c.fail(why)
	}
}

// payload passes the next bytes of a frame on.
func (c *Conn) payload(b []byte) []byte {
	n := min(len(b), c.in.left)
	c.in.left -= n
	if st := c.in.sink; st != nil {
		end := c.in.end && c.in.left == 0
		if c.in.left == 0 {
			c.in.sink = nil
		}
		c.deliver(st, b[:n:n], end)
	}
	return b[n:]
}

// dispatch handles a complete frame. b is valid until it returns.
func (c *Conn) dispatch(f frame, b []byte) {
	switch f.typ {
	case frameData:
		c.paddedData(f, b)
	case frameHeaders:
		c.heads.headers(f, b)
	case frameContinuation:
		c.heads.continuation(f, b)
	case framePriority:
		c.priority(f, b)
	case frameRSTStream:
		c.rstStream(f, b)
	case frameSettings:
		c.settings(f, b)
	case framePushPromise:
		c.fail(ErrPush)
	case framePing:
		c.ping(f, b)
	case frameGoAway:
		c.goodbye.receive(f, b)
	case frameWindowUpdate:
		c.windowUpdate(f, b)
	}
	if c.w.control > controlBound {
		c.fail(ErrControl)
	}
}
