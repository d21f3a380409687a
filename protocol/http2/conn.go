package http2

import "time"

// Conn is one connection, as the loop that owns it uses it: received bytes and messages go in, calls of the handler and
// bytes to send come out. Its parts do the work:
//
//	reader    finds frames in the received bytes
//	heads     makes heads of HEADERS and CONTINUATION
//	bodies    checks DATA, and keeps the receive windows
//	settings  applies the SETTINGS of the peer; acks has ours that the peer has not acknowledged
//	windows   applies WINDOW_UPDATE to the send windows
//	pings     sends PING, and responds to it
//	goodbye   knows what GOAWAY has said
//	streams   begins, finds and ends streams
//	messages  sends messages, whole or in pieces, and tells the handler how far they are
//	writer    sends DATA within the send windows; its output orders all frames to send
//	floods    counts abuse
//
// The Conn itself holds what all parts ask: the options, the handler, and the state, which fail and Close change.
// Parts that embed the Conn call each other's methods, and use no field of each other.
type Conn struct {
	opts      *Options
	handler   Handler         // requests or responses
	requests  RequestHandler  // of a server
	responses ResponseHandler // of a client
	client    bool
	state     connState
	err       *Error // what Feed returns from now on

	reader   reader
	heads    heads
	bodies   bodies
	settings settings
	acks     acks
	pings    pings
	windows  windows
	goodbye  goodbye
	streams  streams
	messages messages

	w      writer
	floods floods
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
	c.init(o, Conn{handler: h, responses: h, client: true, state: connSettings})
}

// init makes c, which may be zero or closed, the Conn next with the memory of c.
func (c *Conn) init(o *Options, next Conn) {
	next.opts, next.floods = o, newFloods(o.Floods)
	next.heads, next.streams, next.w = c.heads, c.streams, c.w
	*c = next
	c.heads.reset(c)
	c.bodies.reset(c)
	c.settings.reset(c)
	c.reader.Conn, c.acks.Conn, c.pings.Conn, c.windows.Conn, c.goodbye.Conn, c.messages.Conn = c, c, c, c, c, c
	c.streams.reset(c)
	c.w.reset(o)
	if c.client {
		c.w.preface()
	}
	c.acks.sendSettings()
	c.bodies.sendWindow()
}

// Preface is what a client sends first.
const Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Advance passes the loop's time, for Floods. It may be called before each Feed, or never.
func (c *Conn) Advance(now time.Duration) { c.floods.advance(now) }

// Feed takes received bytes. After an error, always an *Error, a GOAWAY is queued: the caller
// writes Output, calls Close, and closes the connection. Later calls return the same error.
func (c *Conn) Feed(b []byte) error {
	c.reader.feed(b)
	if c.err != nil {
		return c.err
	}
	return nil
}

// Consumed gives n bytes of the receive window of st back, which the handler has taken. The Conn itself gives back the
// window of the connection, and that for padding.
func (c *Conn) Consumed(st *Stream, n int) { c.bodies.consumed(st, n) }

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

// count counts abuse, which may end the connection.
func (c *Conn) count(k flood) {
	if why := c.floods.add(k); why != nil {
		c.fail(why)
	}
}

// Close releases all memory and the owners of all streams. No call of the handler follows, and
// all methods do nothing, until InitServer or InitClient.
func (c *Conn) Close() {
	if c.state == connClosed {
		return
	}
	c.become(connClosed)
	c.reader.close()
	c.streams.close()
	c.heads.close()
	c.w.close()
}

// Drain is for servers. It says that streams which are under way are accepted, and no others. Its GOAWAY names the highest
// id first. The last stream is named once the client has read that GOAWAY, or at the call of GoAway.
func (c *Conn) Drain() { c.goodbye.drain() }

// GoAway says that no new stream is accepted, and names the last stream that is. Streams that come later are dropped
// silently, as the protocol wants.
func (c *Conn) GoAway(code Code) { c.goodbye.finish(code) }

// Final reports whether GOAWAY has named the last stream that is accepted.
func (c *Conn) Final() bool { return c.goodbye.isFinal() }

// Reset ends st with RST_STREAM. st is over; its owner is released; OnReset is not called. What
// still arrives of it is dropped. It does nothing if st is over.
func (c *Conn) Reset(st *Stream, code Code) { c.streams.resetStream(st, code) }

// Ping asks the peer for a response, which shows that it reads.
func (c *Conn) Ping(data uint64) { c.pings.send(data) }

// Barrier asks, for a client, for OnBarrier once the server has read all frames that were queued before. It returns
// false while 64 SETTINGS are unacknowledged.
func (c *Conn) Barrier() bool { return c.client && c.acks.barrier() }

// StreamCount returns the number of streams that are not over.
func (c *Conn) StreamCount() int { return c.streams.len() }

// MayOpen returns how many requests may begin now: 0 on servers, after a GOAWAY of either side,
// and once ids are used up. Before the peer's SETTINGS it assumes a limit of 100.
func (c *Conn) MayOpen() int {
	if !c.client || !c.usable() || c.goodbye.said() {
		return 0
	}
	return max(0, min(c.settings.streamsLeft(), c.streams.idsLeft()))
}

// Buffered returns the bytes of memory that c holds: in parts of frames, frames that wait for
// Output, and bodies of messages that wait for a window (with an owner or not).
func (c *Conn) Buffered() int {
	return c.reader.buffered() + c.heads.buffered() + len(c.w.out) + c.w.held
}

// BufferedFrames returns the part of Buffered that is no body.
func (c *Conn) BufferedFrames() int { return c.Buffered() - c.w.held }

// Encoded returns the part of Buffered in c's own memory: all but the bodies that are in the memory of
// their owners.
func (c *Conn) Encoded() int { return c.BufferedFrames() + c.w.kept }

// InHead reports whether a header block, the preface with its SETTINGS, or a frame that is passed on
// whole has arrived in part.
func (c *Conn) InHead() bool {
	return c.reader.inFrame() || c.heads.inBlock() || c.state == connSettings
}

// Interned returns the bytes of memory of the compression tables.
func (c *Conn) Interned() int { return c.heads.interned() + c.w.enc.Held() }
