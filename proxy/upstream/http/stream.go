package http

import (
	"bytes"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
)

const (
	// streamAfter is how long after its head the body of an answer may take that
	// did not say its length: what is not complete then is passed on as it comes.
	streamAfter = 100 * time.Millisecond

	// streamAgain is how long a connection waits to leave that has not sent all
	// of its request.
	streamAgain = 2 * time.Millisecond

	// streamHeld is how many messages' worth of an answer is kept meanwhile.
	streamHeld = 2
)

// streamTypes are media types whose bodies come in pieces that are each worth
// having at once, often without an end.
var streamTypes = []string{"text/event-stream", "multipart/x-mixed-replace", "application/x-ndjson"}

// streamType tells whether the answer is of one of these types.
func streamType(hs []protocol.Header) bool {
	value, _, _ := bytes.Cut(protocol.Find(hs, "content-type"), []byte(";"))
	value = bytes.TrimSpace(value)
	for _, t := range streamTypes {
		if protocol.EqualFold(value, t) {
			return true
		}
	}
	return false
}

// long tells whether the body is, or has become, longer than a message may be.
func (c *conn) long() bool {
	return max(c.head.Length, int64(c.body.Length())) > c.shard.MessageLimits.Message
}

// checkStream is called when more of a body is here, but not its end, or when it is
// too long for a message: it may be a stream.
func (c *conn) checkStream() {
	switch {
	case !c.shard.Process.Streams:
	case int64(c.body.Length()) > streamHeld*c.shard.MessageLimits.Message:
		c.fail(fault.ResponseTooLarge)
	case c.long(), c.head.Framing != http1.FixedLength && streamType(c.response.Headers):
		c.handOff()
	case c.head.Framing != http1.FixedLength && !c.pause.Armed():
		c.shard.Loop.After(streamAfter, &c.pause)
	}
}

// handOff answers the attempt with what is here, the rest to be passed on as it
// comes. An answer that nobody waits for is not worth that.
func (c *conn) handOff() {
	if c.current.Lingering() {
		c.close()
		c.release().Ended(true)
		return
	}
	sock, err := c.transport.Detach()
	switch {
	case err == nil:
		c.onDetached(sock)
	case err == loop.ErrDetachBuffered: // its request is not all sent
		c.shard.Loop.After(streamAgain, &c.pause)
	case err == loop.ErrDetachClosed: // OnClose is to come
	case c.long():
		c.fail(fault.ResponseTooLarge)
	}
}

// onDetached: the connection is off the loop.
func (c *conn) onDetached(sock loop.Socket) {
	ans, a := c.response, c.release()
	c.response = nil
	ans.AddVia(c.head.Minor)
	if c.head.Framing == http1.FixedLength {
		ans.DeclaredLength = c.head.Length
	}
	ans.Source = &exchange.StreamSource{
		Socket: sock, Service: c.pool.service.Config.Name,
		Body: c.body, Buffer: ans.BodyBuffer, Lease: c.pool.service.AdoptStream(c.pool.endpoint.LB),
	}
	ans.BodyBuffer = nil
	ans.Hold()
	c.close()
	a.Answered(ans)
}
