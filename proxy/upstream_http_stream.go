package proxy

import (
	"bytes"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
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
func (c *httpUpstream) long() bool {
	return max(c.head.Length, int64(c.body.Length())) > c.w.httpLimits.Message
}

// lasting is called when more of a body is here, but not its end, or when it is
// too long for a message: it may be a stream.
func (c *httpUpstream) lasting() {
	switch {
	case !c.w.shared.streams:
	case int64(c.body.Length()) > streamHeld*c.w.httpLimits.Message:
		c.fail(FailTooLarge)
	case c.long(), c.head.Framing != http1.FixedLength && streamType(c.ans.Headers):
		c.leave()
	case c.head.Framing != http1.FixedLength && !c.pause.Armed():
		c.w.loop.After(streamAfter, &c.pause)
	}
}

// leave answers the attempt with what is here, the rest to be passed on as it
// comes. An answer that nobody waits for is not worth that.
func (c *httpUpstream) leave() {
	if c.a.lingering() {
		c.close()
		c.release().dropped(true)
		return
	}
	sock, err := c.conn.Detach()
	switch {
	case err == nil:
		c.left(sock)
	case err == ErrDetachBuffered: // its request is not all sent
		c.w.loop.After(streamAgain, &c.pause)
	case err == ErrDetachClosed: // OnClose is to come
	case c.long():
		c.fail(FailTooLarge)
	}
}

// left: the connection is off the loop.
func (c *httpUpstream) left(sock Socket) {
	ans, a := c.ans, c.release()
	c.ans = nil
	ans.record(c.head.Minor)
	if c.head.Framing == http1.FixedLength {
		ans.DeclaredLength = c.head.Length
	}
	ans.stream = &StreamSource{
		Socket: sock, Service: c.pool.svc.cfg.Name,
		Body: c.body, Buffer: ans.body, Lease: c.pool.svc.adoptStream(c.pool.target.lb),
	}
	ans.body = nil
	ans.hold()
	c.close()
	a.answered(ans)
}
