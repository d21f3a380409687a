package http

import (
	"io"
	"strconv"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/shard"
)

// conn is one connection to an HTTP endpoint. It carries one request at
// a time.
type conn struct {
	pool      *pool
	shard     *shard.Shard
	transport loop.Conn
	state     connState
	current   *exchange.Attempt // whose answer is awaited

	reused    bool // has answered or been idle before
	idleSince time.Duration
	toHead    bool
	interim   int                // responses before the final one
	response  *exchange.Response // being received
	head      http1.Head
	body      http1.Body
	pause     loop.Timer // the answer's body is not complete: it may be a stream
	outbound  shard.Outbound
	attempt   []byte // x-remora-attempt of the request being sent
}

var _ loop.Destined = (*conn)(nil)

// attemptHeader tells the application that this is not the first attempt. An
// application that passes it on keeps its callees' sidecars from hedging again.
var attemptHeader = []byte(protocol.HeaderAttempt)

// Service implements Destined: an endpoint that the registry says speaks HTTP is
// not sent in the clear what a service with TLS would have encrypted.
func (c *conn) Service() string { return c.pool.service.Config.Name }

func (c *conn) OnOpen(conn loop.Conn) {
	c.transport, c.outbound.Conn = conn, conn
	c.state.become(idle)
	c.pool.onOpened()
	if c.current == nil { // withdrawn while dialling
		c.pool.put(c)
	} else {
		c.begin(c.current)
	}
	c.pool.dialNext()
}

// begin sends a's request.
func (c *conn) begin(a *exchange.Attempt) {
	req := a.Request()
	c.current = a
	a.Carry(c, a.ID())
	n := len(req.Headers)
	if req.Attempt > 0 {
		c.attempt = strconv.AppendUint(c.attempt[:0], uint64(req.Attempt), 10)
		req.Headers = append(req.Headers, protocol.Header{Name: attemptHeader, Value: c.attempt})
	}
	out := http1.AppendRequestHead(c.shard.Scratch[:0], req)
	req.Headers = req.Headers[:n]
	if len(out) == 0 {
		c.release()
		c.pool.put(c)
		a.Failed(fault.BadRequest)
		return
	}
	c.state.become(awaitingHead)
	c.toHead = string(req.Method) == "HEAD"
	c.head.Reset()
	if len(req.Body) > http1.WriteTogether && len(req.Trailers) == 0 {
		c.outbound.Write(out)
		c.outbound.Write(req.Body)
	} else {
		out = http1.AppendBody(out, req.Body, req.Trailers)
		c.outbound.Write(out)
	}
	c.shard.KeepScratch(out)
	c.outbound.Watch()
}

func (c *conn) OnData(b []byte) {
	switch c.state {
	case idle: // nobody asked: what it says can't be trusted
		c.pool.remove(c)
		c.close()
	case awaitingHead:
		c.receiveHead(b)
	case awaitingBody:
		c.receiveBody(b, nil)
	}
}

func (c *conn) receiveHead(b []byte) {
	b, more := http1.SplitHead(b)
	if c.response == nil {
		c.response = c.pool.responses.Response()
		c.response.HeadBuffer = c.shard.Buffers.Get(len(b))
		c.interim = 0
	}
	in := c.response.HeadBuffer
	c.shard.Buffers.Append(in, b, 0)
	for {
		n, err := http1.DecodeResponse(in.B, c.toHead, &c.response.Response, &c.head, c.shard.MessageLimits)
		switch {
		case err == http1.ErrIncomplete && len(more) > 0:
			c.shard.Buffers.Append(in, more, 0)
			more = nil
			continue
		case err == http1.ErrIncomplete:
			c.response.Hold()
			return
		case err == http1.ErrMessageTooLarge && !c.shard.Process.Streams:
			c.fail(fault.ResponseTooLarge)
			return
		case err != nil && err != http1.ErrMessageTooLarge || c.response.Status == 101: // no upgrade was asked for
			c.fail(fault.Malformed)
			return
		}
		if c.response.Status >= 200 {
			c.onHead(n, more)
			return
		}
		// An interim response; ours to drop (RFC 9110 section 15.2).
		if c.interim++; c.interim > http1.MaxInterim {
			c.fail(fault.Malformed)
			return
		}
		c.response.Response.Reset()
		c.head.Reset()
		in.B = append(in.B[:0], in.B[n:]...)
	}
}

// onHead: the first n bytes of the input are the head of the final response, and more
// has come behind the input.
func (c *conn) onHead(n int, more []byte) {
	ans := c.response
	rest := ans.HeadBuffer.B[n:]
	switch {
	case c.head.Framing == http1.NoBody:
		c.done(len(rest) + len(more))
		return
	case c.head.Framing == http1.FixedLength && int64(len(rest)) >= c.head.Length:
		end := n + int(c.head.Length)
		ans.Body = ans.HeadBuffer.B[n:end:end]
		c.done(len(ans.HeadBuffer.B) - end + len(more))
		return
	}
	c.state.become(awaitingBody)
	ans.HeadBuffer.B, ans.BodyBuffer = ans.HeadBuffer.B[:n], c.shard.Buffers.Get(0)
	c.body.Reset(&c.head, c.shard.BodyLimits())
	c.receiveBody(rest, more)
}

// receiveBody feeds the body's decoder with b and with more.
func (c *conn) receiveBody(b, more []byte) {
	http1.ReserveBody(&c.shard.Buffers, c.response.BodyBuffer, &c.head, b)
	n, done, err := c.body.Decode(b, c.response.BodyBuffer)
	switch {
	case err == nil && !done && len(more) > 0:
		c.receiveBody(more, nil)
	case err == http1.ErrMessageTooLarge:
		c.fail(fault.ResponseTooLarge)
	case err != nil:
		c.fail(fault.Malformed)
	case done && !c.long():
		c.finishBody(len(b) - n + len(more))
	default:
		c.response.Hold()
		c.checkStream()
	}
}

func (c *conn) finishBody(surplus int) {
	size := c.body.Length()
	c.response.Body = c.response.BodyBuffer.B[:size:size]
	c.response.Trailers = c.body.Trailers(c.response.BodyBuffer, c.response.Trailers[:0])
	c.done(surplus)
}

// done hands the complete answer to its attempt. Bytes after it belong to no
// request: such a connection is not used again.
func (c *conn) done(surplus int) {
	ans, a := c.response, c.release()
	c.response = nil
	c.shard.Loop.Stop(&c.pause)
	ans.AddVia(c.head.Minor)
	ans.Hold()
	c.reused = true
	if c.head.KeepAlive && surplus == 0 && c.transport.Buffered() == 0 {
		c.state.become(idle)
		c.pool.put(c)
	} else {
		c.close()
	}
	a.Answered(ans)
}

// fail ends the attempt and the connection.
func (c *conn) fail(f *fault.Failure) {
	c.close()
	if a := c.release(); a != nil {
		a.Failed(f)
	}
}

// release unties the connection from its attempt, which is the caller's to end then,
// or to send elsewhere; nil: it has none.
func (c *conn) release() *exchange.Attempt {
	a := c.current
	if a != nil {
		c.current = nil
		a.Release()
	}
	return a
}

// close drops what was received and closes the connection.
func (c *conn) close() {
	if c.state == closed {
		return
	}
	c.state.become(closed)
	c.outbound.Stop()
	c.shard.Loop.Stop(&c.pause)
	if c.response != nil {
		c.response.Release()
		c.response = nil
	}
	if c.transport != nil {
		c.transport.Close()
	}
}

func (c *conn) OnClose(err error) {
	c.pool.open--
	if c.state == dialing {
		c.onDialFailed(c.pool.service.DialFailed(c.pool.endpoint.LB.Addr, err))
		return
	}
	c.onClosed(err)
	c.pool.dialNext()
}

// onClosed: the connection that there was is no more.
func (c *conn) onClosed(err error) {
	switch c.state {
	case closed:
	case idle:
		c.pool.remove(c)
		c.close()
	case awaitingHead:
		c.onStale()
	case awaitingBody:
		if err == io.EOF && c.body.Close() == nil && !c.long() { // a body that ends with the connection
			c.head.KeepAlive = false
			c.finishBody(0)
			return
		}
		c.fail(fault.Reset)
	}
}

// onDialFailed: there is no connection, for f. That the driver has no room for the dial
// says nothing of the endpoint, and one that is open may be free soon.
func (c *conn) onDialFailed(f *fault.Failure) {
	p := c.pool
	p.dialing--
	if f == fault.DialLimit && p.open > p.dialing {
		c.close()
		p.onDialRefused(c.release())
		return
	}
	p.backoff = 0
	c.fail(f)
	p.expire()
	p.dialNext()
}

// onStale: the peer closed before the head of an answer. On a connection that was
// idle before, the likely reason is that its server had just closed it for
// idleness: the request is sent once more, on a fresh one if there is room, if that is
// safe (RFC 9112 section 9.3.1).
func (c *conn) onStale() {
	a := c.current
	if !c.reused || c.response != nil || !a.MayReplay() {
		c.fail(fault.Reset)
		return
	}
	c.close()
	c.release()
	a.Replay()
	if c.pool.mayDial() {
		c.pool.dial(a)
	} else {
		c.pool.wait(a)
	}
}

// Cancel implements carrier. It leaves the request with the application if that may
// have it: its answer is awaited and dropped, so that the connection stays and the
// application's work stays counted.
func (c *conn) Cancel(*exchange.Attempt) (lingers bool) {
	if c.state != dialing {
		return true
	}
	c.release()
	return false
}

// Abort implements carrier. It closes the connection: there is no other way to take a
// request back.
func (c *conn) Abort(*exchange.Attempt) {
	c.release()
	if c.state != dialing {
		c.close()
	}
}

// Buffered implements carrier.
func (c *conn) Buffered(*exchange.Attempt) int {
	n := c.outbound.Counted
	if c.response != nil {
		n += c.response.Held
	}
	return n
}
