package http2

import (
	"encoding/binary"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
)

// heads makes heads and trailers of header blocks, and begins the streams of requests.
//
// Calls in: headers and continuation take a frame.
//
// Calls out: the handler gets each head and the trailers. A stream may end.
type heads struct {
	*Conn
	block   block
	decoder headDecoder
	fields  []protocol.Header // memory of trailers
}

// reset prepares for a new connection.
func (hs *heads) reset(c *Conn) {
	*hs = heads{Conn: c, decoder: hs.decoder, fields: hs.fields[:0]}
	hs.decoder.reset(c.opts, c.handler)
}

// close gives the memory of a block in parts back.
func (hs *heads) close() { hs.opts.Buffers.Release(&hs.block.buf) }

// inBlock reports whether a header block has arrived in part.
func (hs *heads) inBlock() bool { return hs.block.id != 0 }

// excludes reports whether f may not come, as only the rest of a block may.
func (hs *heads) excludes(f frame) bool {
	return hs.block.id != 0 && (f.typ != frameContinuation || f.id != hs.block.id)
}

// buffered returns the bytes of memory of a block in parts.
func (hs *heads) buffered() int { return protocol.Held(hs.block.buf) }

// interned returns the bytes of memory of the compression table.
func (hs *heads) interned() int { return hs.decoder.table.Held() }

// block is a header block in parts: HEADERS without END_HEADERS, and CONTINUATION frames.
type block struct {
	id            uint32                     // 0: there is none
	end           bool                       // the message ends with the block
	dependsOnSelf bool                       // the stream depends on itself
	frames        int                        // CONTINUATION frames
	buf           *bytebufferpool.ByteBuffer // nil if there is none
}

// headers handles a HEADERS frame.
func (hs *heads) headers(f frame, b []byte) {
	if f.id == 0 {
		hs.fail(ErrStreamID)
		return
	}
	b, ok := padding(f, b)
	if !ok {
		hs.fail(ErrPadding)
		return
	}
	self := false
	if f.has(flagPriority) {
		if len(b) < 5 {
			hs.fail(ErrFrameSize)
			return
		}
		self = binary.BigEndian.Uint32(b)&maxID == f.id
		b = b[5:]
	}
	end := f.has(flagEndStream)
	if f.has(flagEndHeaders) {
		hs.headerBlock(f.id, b, end, self)
		return
	}
	hs.block.id, hs.block.end, hs.block.dependsOnSelf, hs.block.frames = f.id, end, self, 0
	hs.block.buf = hs.opts.Buffers.Get(len(b))
	hs.opts.Buffers.Append(hs.block.buf, b, 0)
}

// continuation handles a CONTINUATION frame.
func (hs *heads) continuation(f frame, b []byte) {
	p := &hs.block
	if p.id == 0 { // excludes has refused the rest of another block
		hs.fail(ErrInterleaved)
		return
	}
	p.frames++
	// A block between the limit and twice that is decoded, so that only its stream is refused.
	if hs.floods.excludes(p.frames) || len(p.buf.B)+len(b) > 2*hs.opts.Limits.Header+blockExtra {
		hs.fail(ErrContinuations)
		return
	}
	hs.opts.Buffers.Append(p.buf, b, 0)
	if !f.has(flagEndHeaders) {
		return
	}
	whole := p.buf
	p.id, p.buf = 0, nil
	hs.headerBlock(f.id, whole.B, p.end, p.dependsOnSelf)
	hs.opts.Buffers.Put(whole)
}

// headerBlock handles a complete header block. It is decoded in any case, as it may change the
// table.
func (hs *heads) headerBlock(id uint32, b []byte, end, self bool) {
	st, why := hs.streamOfHead(id, end)
	if why == nil && self {
		why = ErrDependency
	}
	switch {
	case !hs.usable():
	case why != nil:
		if hs.ignore(b); hs.usable() {
			hs.resetHead(st, id, why)
		}
	case st == nil:
		hs.ignore(b)
	case st.is(discard) && st.is(headReceived): // trailers of a message that nobody wants
		if hs.ignore(b); end && hs.usable() {
			st.endRemote()
			hs.streams.endIfDone(st)
		}
	case st.is(headReceived):
		hs.trailers(st, b)
	case hs.client:
		hs.response(st, b, end)
	default:
		hs.request(st, b, end)
	}
	hs.decoder.head.forget()
}

// streamOfHead returns the stream of a header block, or why the block is refused. If both results are nil, the block is
// ignored.
func (hs *heads) streamOfHead(id uint32, end bool) (*Stream, *Error) {
	st := hs.streams.get(id)
	switch {
	case st == nil && hs.client:
		hs.lateHeaders(id)
	case st == nil:
		return hs.acceptStream(id)
	case st.Ended():
		return st, ErrHalfClosed
	case st.is(headReceived) && !end:
		return st, ErrTrailers
	}
	return st, nil
}

// resetHead resets stream id, whose header block is refused. st is nil if the stream has not begun. The handler of a
// server does not know a stream before its first head.
func (hs *heads) resetHead(st *Stream, id uint32, why *Error) {
	if st != nil && (hs.client || st.is(headReceived)) {
		hs.streams.resetForError(st, why)
		return
	}
	hs.streams.resetIDForError(id, why)
	if st != nil {
		hs.streams.end(st)
	}
}

// acceptStream begins the stream of a new request. If both results are nil, the head is ignored.
func (hs *heads) acceptStream(id uint32) (*Stream, *Error) {
	if !hs.streams.isIdle(id) || id&1 == 0 {
		hs.lateHeaders(id)
		return nil, nil
	}
	hs.streams.arrive(id)
	switch {
	case hs.goodbye.drops(id):
		return nil, nil
	case hs.streams.len() >= hs.opts.streams():
		if hs.acks.settingsUnread() { // the peer does not know the limit yet
			if hs.count(floodResets); hs.usable() { // nor will it, if it does not acknowledge SETTINGS
				hs.streams.queueReset(id, RefusedStream)
			}
			return nil, nil
		}
		return nil, ErrTooMany
	}
	st := hs.streams.begin(id)
	st.recv, st.window, st.begun = hs.acks.window(), hs.w.initial, hs.floods.now()
	return st, nil
}

// lateHeaders handles HEADERS on a stream that is over, or can't begin.
func (hs *heads) lateHeaders(id uint32) {
	switch t := &hs.streams; {
	case t.wasReset(id), hs.goodbye.drops(id) && !t.isIdle(id):
		hs.count(floodOthers)
	case t.hasEnded(id):
		hs.fail(ErrEnded)
	case !t.isIdle(id) && t.mayBeReset(id):
		hs.count(floodOthers)
	default:
		hs.fail(ErrStreamID)
	}
}

// ignore decodes a block whose fields nobody wants.
func (hs *heads) ignore(b []byte) {
	hs.decode(headIgnored, nil, b, nil, nil)
}

// decode decodes the block b. Its fields go to headers, and their text to buf.
func (hs *heads) decode(k headKind, st *Stream, b []byte, headers []protocol.Header, buf *bytebufferpool.ByteBuffer) *head {
	if !hs.decoder.decode(k, st, b, headers, buf) {
		hs.fail(ErrCompression)
	}
	return &hs.decoder.head
}

func (hs *heads) request(st *Stream, b []byte, end bool) {
	req, buf := hs.requests.NewRequest(st)
	if req == nil {
		hs.ignore(b)
		if hs.usable() {
			hs.Reset(st, RefusedStream)
		}
		return
	}
	req.Reset()
	h := hs.decode(headRequest, st, b, req.Headers, buf)
	req.Headers = h.headers
	if !hs.usable() {
		return
	}
	if h.bad != nil {
		hs.streams.resetForError(st, h.bad)
		return
	}
	st.flags |= headReceived
	if h.over {
		if st.flags |= discard; end {
			st.endRemote()
		}
		if h.noRoom {
			hs.requests.OnNoRoom(st)
		} else {
			hs.requests.OnOversize(st)
		}
		return
	}
	req.Method, req.Path, req.Authority, req.NeverIndexed = h.method, h.path, h.authority, h.never
	if string(h.method) == "HEAD" {
		st.flags |= toHead
	}
	if st.length = h.length; end && h.length > 0 {
		hs.streams.resetForError(st, ErrLength)
		return
	}
	if h.expects && !end {
		st.flags |= expects
	}
	if end {
		st.endRemote()
	}
	hs.requests.OnRequest(st, end)
}

// afterHead ends st if both sides have ended. A request does not need it: no response is sent before OnRequest returns.
func (hs *heads) afterHead(st *Stream, end bool) {
	if end && hs.usable() {
		hs.streams.endIfDone(st)
	}
}

func (hs *heads) response(st *Stream, b []byte, end bool) {
	// Interim responses are rare, so the memory of a final response is asked for before the head is decoded.
	res, buf := hs.responses.NewResponse(st)
	if res == nil {
		hs.ignore(b)
		if hs.usable() {
			hs.Reset(st, Cancel)
		}
		return
	}
	res.Reset()
	h := hs.decode(headResponse, st, b, res.Headers, buf)
	res.Headers = h.headers
	switch {
	case !hs.usable():
		return
	case h.bad != nil:
		hs.streams.resetForError(st, h.bad)
		return
	case h.noRoom: // no fault of the peer
		hs.streams.resetUncounted(st, ErrNoRoom)
		return
	case h.over:
		hs.streams.resetForError(st, ErrHeadSize)
		return
	case h.status < 200:
		if end || h.status == 101 {
			hs.streams.resetForError(st, ErrInterim)
			return
		}
		if st.interim < freeInterim {
			st.interim++
		} else if hs.count(floodOthers); !hs.usable() {
			return
		}
		res.Status = h.status
		hs.responses.OnInterim(st)
		return
	}
	res.Status, res.DeclaredLength = h.status, h.length
	st.length = h.length
	st.flags |= headReceived
	if h.status == 204 || h.status == 304 || st.is(toHead) {
		st.flags |= noContent
	} else if end && h.length > 0 {
		hs.streams.resetForError(st, ErrLength)
		return
	}
	if end {
		st.endRemote()
	}
	hs.responses.OnResponse(st, end)
	hs.afterHead(st, end)
}

func (hs *heads) trailers(st *Stream, b []byte) {
	buf := hs.opts.Buffers.Get(len(b))
	h := hs.decode(headTrailers, nil, b, hs.fields[:0], buf)
	defer hs.keepTrailers(buf)
	switch {
	case !hs.usable():
		return
	case h.bad != nil:
		hs.streams.resetForError(st, h.bad)
		return
	case h.over:
		hs.streams.resetForError(st, ErrHeadSize)
		return
	case st.length >= 0 && !st.is(noContent) && st.got != st.length:
		hs.streams.resetForError(st, ErrLength)
		return
	}
	st.endRemote()
	hs.handler.OnTrailers(st, h.headers)
	hs.afterHead(st, true)
}

// keepTrailers keeps the memory of trailers that were passed on, whose text is in buf.
func (hs *heads) keepTrailers(buf *bytebufferpool.ByteBuffer) {
	hs.opts.Buffers.Put(buf)
	clear(hs.decoder.head.headers)
	if hs.fields = hs.decoder.head.headers; cap(hs.fields) > keepFields {
		hs.fields = nil
	}
}
