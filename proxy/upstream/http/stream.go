package http

import (
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
)

const streamHeld = 2 // multiple of limits.message that a response may hold until it leaves the loop

// tooLong reports whether the body is longer than limits.message, as announced or so far.
func (c *conn) tooLong() bool {
	return max(c.head.Length, int64(c.body.Length())) > c.shard.MessageLimits.Message
}

// checkStream makes a response a stream if it must be one. It is called when a part of the body
// was received, or when the body is too long for a message.
func (c *conn) checkStream() {
	switch {
	case !c.shard.Process.Streams:
	case c.held, c.tooLong(), c.head.Framing != http1.FixedLength && c.response.IsFeed():
		c.becomeStream()
	case c.head.Framing != http1.FixedLength && !c.pause.Armed():
		c.shard.Loop.After(race.StreamAfter, &c.pause)
	}
}

// becomeStream passes a response on that must be a stream, or holds its head as long as the race wants.
func (c *conn) becomeStream() {
	if c.response != nil && c.body.Length() == 0 {
		if wait := c.current.HoldsHead(); wait > 0 {
			c.held = true
			c.shard.Loop.After(wait, &c.pause)
			return
		}
	}
	c.leave()
}

// leave takes the connection off the loop, and passes the response to its attempt as a
// stream. The response of a lingering attempt is dropped.
func (c *conn) leave() {
	if c.response == nil { // it became complete before all of its request was sent
		return
	}
	if c.current.Lingering() {
		c.drop()
		return
	}
	sock, err := c.transport.Detach()
	switch {
	case err == nil:
		c.onDetached(sock)
	case err == loop.ErrDetachBuffered && int64(c.body.Length()) > streamHeld*c.shard.MessageLimits.Message:
		c.fail(fault.ResponseTooLarge)
	case err == loop.ErrDetachBuffered: // its request is not completely sent
		c.transport.AwaitRoom(0, &c.room)
	case err == loop.ErrDetachClosed: // OnClose follows
	case c.tooLong():
		c.fail(fault.ResponseTooLarge)
	}
}

// drop ends the response of a lingering attempt before it is complete.
func (c *conn) drop() {
	c.close()
	c.release().Finish(true)
}

// onDetached passes the response to its attempt, after the connection has left the loop.
func (c *conn) onDetached(sock loop.Socket) {
	res, a := c.response, c.release()
	c.response = nil
	res.Receive(c.head.Minor)
	if c.head.Framing == http1.FixedLength {
		res.DeclaredLength = c.head.Length
	}
	res.Source = &race.StreamSource{
		Socket: sock, Addr: c.pool.endpoint.LB.Addr, Service: c.pool.service.Config.Name,
		Body: c.body, Buffer: res.BodyBuffer, Stream: race.AdoptStream(c.pool.service, c.pool.endpoint.LB),
	}
	res.BodyBuffer = nil
	res.Charge()
	c.close()
	a.Respond(res)
}
