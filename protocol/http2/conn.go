package http2

import (
	"time"

	"github.com/remora-proxy/remora/protocol"
)

// Conn is one connection, which one loop owns. Its parts are heads, goodbye and acks. They use no field of each other.
type Conn struct {
	opts      *Options
	handler   Handler         // requests or responses
	requests  RequestHandler  // of a server
	responses ResponseHandler // of a client
	client    bool
	state     connState
	err       *Error // what Feed returns from now on

	in      input
	heads   heads
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
	next.heads, next.streams, next.w = c.heads, c.streams, c.w
	*c = next
	c.heads.reset(c)
	c.goodbye.Conn, c.acks.Conn = c, c
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

// Ping asks the peer for a response, which shows that it reads.
func (c *Conn) Ping(data uint64) {
	if c.usable() {
		c.w.out = appendPing(c.w.out, 0, data)
	}
}

// Barrier asks, for a client, for OnBarrier once the server has read all frames that were queued before. It returns
// false while 64 SETTINGS are unacknowledged.
func (c *Conn) Barrier() bool { return c.client && c.acks.barrier() }

// StreamCount returns the number of streams that are not over.
func (c *Conn) StreamCount() int { return c.streams.n }

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
	return protocol.Held(c.in.partial) + c.heads.buffered() + len(c.w.out) + c.w.held
}

// BufferedFrames returns the part of Buffered that is no body.
func (c *Conn) BufferedFrames() int { return c.Buffered() - c.w.held }

// Encoded returns the part of Buffered in c's own memory: all but the bodies that are in the memory of
// their owners.
func (c *Conn) Encoded() int { return c.BufferedFrames() + c.w.kept }

// InHead reports whether a header block, the preface with its SETTINGS, or a frame that is passed on
// whole has arrived in part.
func (c *Conn) InHead() bool {
	return c.in.partial != nil || c.heads.inBlock() || c.state == connSettings
}

// Interned returns the bytes of memory of the compression tables.
func (c *Conn) Interned() int { return c.heads.interned() + c.w.enc.Held() }
