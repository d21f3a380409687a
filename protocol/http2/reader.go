package http2

import (
	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
)

// reader finds frames in the received bytes, and hands each to the part that handles it. Between two calls of feed the
// reader is between frames, in a frame that is kept until it is complete, or in the payload of a frame that is passed on
// as it arrives.
//
// Calls in: feed takes the bytes. forget and close drop what waits.
//
// Calls out: each part gets its frames.
type reader struct {
	*Conn
	partial *bytebufferpool.ByteBuffer // the start of a preface or frame; nil between frames
	need    int                        // the length of that frame; 0 while its header is incomplete

	left int     // bytes of payload still to pass on
	sink *Stream // to whom; nil skips them
	end  bool    // the stream's message ends behind them
}

// feed takes received bytes, until the connection fails.
func (r *reader) feed(b []byte) {
	for len(b) > 0 && r.usable() {
		switch {
		case r.left > 0:
			b = r.payload(b)
		case r.partial != nil:
			b = r.resume(b)
		case r.state == connPreface:
			b = r.preface(b)
		default:
			b = r.next(b)
		}
	}
}

// preface reads the client's preface; a wrong byte fails at once.
func (r *reader) preface(b []byte) []byte {
	n := min(len(b), len(Preface))
	if string(b[:n]) != Preface[:n] {
		r.fail(ErrPreface)
		return nil
	}
	if n < len(Preface) {
		r.save(b)
		return nil
	}
	r.become(connSettings)
	return b[n:]
}

// next reads the frame at the start of b.
func (r *reader) next(b []byte) []byte {
	if len(b) < frameHead {
		r.save(b)
		return nil
	}
	f := parseFrame(b)
	if r.streamed(f) {
		return b[frameHead:]
	}
	if !r.usable() {
		return nil
	}
	whole := frameHead + f.length
	if len(b) < whole {
		r.need = whole
		r.save(b)
		return nil
	}
	r.dispatch(f, b[frameHead:whole:whole])
	return b[whole:]
}

// resume extends a partial preface or frame: to its header first, then with all that is missing.
func (r *reader) resume(b []byte) []byte {
	need := r.need
	if need == 0 {
		need = frameHead
		if r.state == connPreface {
			need = len(Preface)
		}
	}
	n := min(len(b), need-len(r.partial.B))
	r.save(b[:n])
	b = b[n:]
	whole := r.partial
	if r.state == connPreface {
		r.partial = nil
		r.preface(whole.B)
		r.opts.Buffers.Put(whole)
		return b
	}
	if len(whole.B) < need {
		return b
	}
	f := parseFrame(whole.B)
	if r.need == 0 {
		if r.streamed(f) || !r.usable() {
			r.drop()
			return b
		}
		if r.need = frameHead + f.length; f.length > 0 {
			return b
		}
	}
	r.partial, r.need = nil, 0
	r.dispatch(f, whole.B[frameHead:])
	r.opts.Buffers.Put(whole)
	return b
}

func (r *reader) save(b []byte) {
	if r.partial == nil {
		r.partial = r.opts.Buffers.Get(0)
	}
	r.opts.Buffers.Append(r.partial, b, r.need)
}

// drop gives the memory of a partial frame back.
func (r *reader) drop() {
	r.opts.Buffers.Release(&r.partial)
	r.need = 0
}

// close drops all that has arrived in part.
func (r *reader) close() {
	r.drop()
	r.sink = nil
}

// forget skips the rest of a frame that is for st, which is over.
func (r *reader) forget(st *Stream) {
	if r.sink == st {
		r.sink = nil
	}
}

// inFrame reports whether a frame that is kept has arrived in part.
func (r *reader) inFrame() bool { return r.partial != nil }

// buffered returns the bytes of memory of a frame in parts.
func (r *reader) buffered() int { return protocol.Held(r.partial) }

// streamed judges the header of a frame. It begins a frame whose payload is passed on, or
// skipped, as it arrives, and returns true then.
func (r *reader) streamed(f frame) bool {
	switch {
	case f.length > maxFrame:
		r.fail(ErrFrameSize)
	case r.state == connSettings && (f.typ != frameSettings || f.has(flagAck)):
		r.fail(ErrPreface)
	case r.heads.excludes(f):
		r.fail(ErrInterleaved)
	case f.typ >= frameTypes:
		r.count(floodOthers)
		r.left, r.sink, r.end = f.length, nil, false
		return true
	case f.typ == frameData && !f.has(flagPadded):
		r.left, r.sink, r.end = f.length, nil, false
		st := r.bodies.accept(f, f.length)
		if st == nil {
			return true
		}
		if f.length > 0 {
			r.sink, r.end = st, f.has(flagEndStream)
			return true
		}
		if f.has(flagEndStream) {
			r.bodies.deliver(st, nil, true)
		}
		return true
	}
	return false
}

// payload passes the next bytes of a frame on.
func (r *reader) payload(b []byte) []byte {
	n := min(len(b), r.left)
	r.left -= n
	if st := r.sink; st != nil {
		end := r.end && r.left == 0
		if r.left == 0 {
			r.sink = nil
		}
		r.bodies.deliver(st, b[:n:n], end)
	}
	return b[n:]
}

// dispatch handles a complete frame. b is valid until it returns.
func (r *reader) dispatch(f frame, b []byte) {
	switch f.typ {
	case frameData:
		r.bodies.padded(f, b)
	case frameHeaders:
		r.heads.headers(f, b)
	case frameContinuation:
		r.heads.continuation(f, b)
	case framePriority:
		r.streams.receivePriority(f, b)
	case frameRSTStream:
		r.streams.receiveReset(f, b)
	case frameSettings:
		r.settings.receive(f, b)
	case framePushPromise:
		r.fail(ErrPush)
	case framePing:
		r.pings.receive(f, b)
	case frameGoAway:
		r.goodbye.receive(f, b)
	case frameWindowUpdate:
		r.windows.receive(f, b)
	}
	if r.w.isUnread() {
		r.fail(ErrControl)
	}
}
