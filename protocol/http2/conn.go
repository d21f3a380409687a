package http2

import (
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2/hpack"
)

// Conn is one connection. One loop owns it.
type Conn struct {
	opts      *Options
	handler   Handler         // requests or responses
	requests  RequestHandler  // of a server
	responses ResponseHandler // of a client
	client    bool
	state     connState
	err       *Error // what Feed returns from now on

	in     input
	block  block
	head   head
	dec    hpack.Decoder
	fields []protocol.Header // trailers

	goodbye goodbye
	acks    acks

	streams streams
	w       writer
	floods  floods

	peerStreams int // client: how many streams the peer allows
	recv, given int // the connection's receive window: bytes the peer may still send, and not yet given back
}

type connState uint8

const (
	connPreface  connState = iota // server: the client's preface is missing
	connSettings                  // the peer's first SETTINGS are missing
	connOpen
	connFailed // err is set
	connClosed
)

// become changes the state, which moves down the list.
func (c *Conn) become(next connState) {
	if next <= c.state {
		panic("http2: illegal change of a Conn's state")
	}
	c.state = next
}

// InitServer makes c, which may be zero or closed, the server's side of a new connection. Its first bytes are queued.
// o must not change afterwards.
func (c *Conn) InitServer(o *Options, h RequestHandler) {
	c.init(o, Conn{handler: h, requests: h})
}

// InitClient is InitServer for the client's side.
func (c *Conn) InitClient(o *Options, h ResponseHandler) {
	c.init(o, Conn{handler: h, responses: h, client: true, state: connSettings, peerStreams: defaultStreams})
}

// init makes c, which may be zero or closed, the Conn next with the memory of c.
func (c *Conn) init(o *Options, next Conn) {
	next.opts, next.floods = o, newFloods(o.Floods)
	next.dec, next.w, next.streams, next.fields = c.dec, c.w, c.streams, c.fields[:0]
	*c = next
	c.goodbye.Conn, c.acks.Conn = c, c
	c.dec.Grower = (*headMemory)(c)
	c.dec.Reset(marks)
	c.streams.reset()
	c.w.reset(o)
	if c.client {
		c.w.out = append(c.w.out, Preface...)
	}
	c.recv = c.opts.connWindow()
	c.acks.sendSettings()
	c.w.out = appendWindowUpdate(c.w.out, 0, c.recv-defaultWindow)
}

// Preface is what a client sends first.
const Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Advance passes the loop's time, for Floods. It may be called before each Feed, or never.
func (c *Conn) Advance(now time.Duration) { c.floods.advance(now) }

// usable reports whether frames may still be sent.
func (c *Conn) usable() bool { return c.state < connFailed }

// fail ends the connection: GOAWAY is queued, and Feed returns why from now on.
func (c *Conn) fail(why *Error) {
	if !c.usable() {
		return
	}
	c.err = why
	c.become(connFailed)
	c.goodbye.queue(why.Code)
}

// Close releases all memory and the owners of all streams. No call of the handler follows, and
// all methods do nothing, until InitServer or InitClient.
func (c *Conn) Close() {
	if c.state == connClosed {
		return
	}
	c.become(connClosed)
	c.in.drop(c.opts.Buffers)
	for _, s := range c.streams.slots {
		if s != nil {
			c.w.release(s)
			s.id, s.Owner = 0, nil
		}
	}
	clear(c.streams.slots)
	c.streams.n, c.in.sink = 0, nil
	c.opts.Buffers.Release(&c.block.buf)
	c.w.close()
}

// over ends st: it leaves the table and releases its memory. st may be used until the next call
// of the loop that handles events, or of Output.
func (c *Conn) over(st *Stream) {
	c.streams.remove(st)
	c.w.release(st)
	if c.in.sink == st {
		c.in.sink = nil
	}
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
		c.over(st)
	}
}

// Reset ends st with RST_STREAM. st is over; its owner is released; OnReset is not called. What
// still arrives of it is dropped. It does nothing if st is over.
func (c *Conn) Reset(st *Stream, code Code) {
	if st.id == 0 {
		return
	}
	if c.usable() {
		c.rst(st.id, code)
	}
	if st.is(reported) && !c.client { // the response was complete before the request
		c.floods.requests++
	}
	c.over(st)
}

// rst queues a RST_STREAM.
func (c *Conn) rst(id uint32, code Code) {
	c.streams.resets.add(id, resetMemory)
	c.w.out = appendRSTStream(c.w.out, id, code)
	c.w.control += frameHead + 4
}

// refuse resets st because of an error of the peer.
func (c *Conn) refuse(st *Stream, why *Error) {
	if flood := c.floods.add(floodProvoked); flood != nil {
		c.fail(flood)
		return
	}
	c.giveUp(st, why)
}

// giveUp resets st.
func (c *Conn) giveUp(st *Stream, why *Error) {
	c.rst(st.id, why.Code)
	c.overByReset(st, why.Code, why)
}

// overByReset tells the handler that st is over, which may also close c meanwhile.
func (c *Conn) overByReset(st *Stream, code Code, why *Error) {
	id := st.id
	c.handler.OnReset(st, code, why)
	if st.id == id && c.state != connClosed {
		c.over(st)
	}
}

// refuseID is refuse for a stream that the handler does not know.
func (c *Conn) refuseID(id uint32, why *Error) {
	if flood := c.floods.add(floodProvoked); flood != nil {
		c.fail(flood)
		return
	}
	c.rst(id, why.Code)
}

// Drain says, for a server, that no new stream is accepted but those that are under way. It names the highest id
// first, and the last stream once the client has read that, or at GoAway.
func (c *Conn) Drain() { c.goodbye.drain() }

// GoAway says that no new stream is accepted, and names the last stream that is. Streams that come later are dropped
// silently, as the protocol wants.
func (c *Conn) GoAway(code Code) { c.goodbye.finish(code) }

// Final reports whether GOAWAY has named the last stream that is accepted.
func (c *Conn) Final() bool { return c.goodbye.isFinal() }

// Ping asks the peer for a response, which shows that it reads.
func (c *Conn) Ping(data uint64) {
	if c.usable() {
		c.w.out = appendPing(c.w.out, 0, data)
	}
}

// Barrier asks, for a client, for OnBarrier once the server has read all frames that were queued before. It returns
// false while 64 SETTINGS are unacknowledged.
func (c *Conn) Barrier() bool { return c.client && c.acks.barrier() }

// Open returns the number of streams that are not over.
func (c *Conn) Open() int { return c.streams.n }

// MayOpen returns how many requests may begin now: 0 on servers, after a GOAWAY of either side,
// and once ids are used up. Before the peer's SETTINGS it assumes a limit of 100.
func (c *Conn) MayOpen() int {
	if !c.client || !c.usable() || c.goodbye.said() {
		return 0
	}
	return max(0, min(c.peerStreams-c.streams.n, c.streams.idsLeft()))
}

// Buffered returns the bytes of memory that c holds: in parts of frames, frames that wait for
// Output, and bodies of messages that wait for a window (with an owner or not).
func (c *Conn) Buffered() int {
	return protocol.Held(c.in.partial) + protocol.Held(c.block.buf) + len(c.w.out) + c.w.held
}

// BufferedFrames returns the part of Buffered that is no body.
func (c *Conn) BufferedFrames() int { return c.Buffered() - c.w.held }

// Encoded returns the part of Buffered in c's own memory: all but the bodies that are in the memory of
// their owners.
func (c *Conn) Encoded() int { return c.BufferedFrames() + c.w.kept }

// InHead reports whether a header block, the preface with its SETTINGS, or a frame that is passed on
// whole has arrived in part.
func (c *Conn) InHead() bool {
	return c.in.partial != nil || c.block.id != 0 || c.state == connSettings
}

// Interned returns the bytes of memory of the compression tables.
func (c *Conn) Interned() int { return c.dec.Held() + c.w.enc.Held() }
