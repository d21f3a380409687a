package proxy

import (
	"io"
	"strconv"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
)

// upstreamState is where an upstream HTTP connection stands.
type upstreamState uint8

const (
	upstreamDialing upstreamState = iota // not open yet
	upstreamIdle                         // open, no request out
	upstreamHead                         // a request is out, its answer's head not complete
	upstreamBody                         // the head is here
	upstreamClosed
)

// httpUpstream is one connection to an HTTP endpoint. It carries one request at
// a time.
type httpUpstream struct {
	pool  *httpPool
	w     *shard
	conn  Conn
	state upstreamState
	a     *attempt // whose answer is awaited

	reused    bool // has answered or been idle before
	idleSince time.Duration
	toHead    bool
	interim   int     // responses before the final one
	ans       *answer // being received
	head      http1.Head
	body      http1.Body
	pause     Timer // the answer's body is not complete: it may be a stream
	outbound  outbound
	attempt   []byte // x-remora-attempt of the request being sent
}

var _ Destined = (*httpUpstream)(nil)

// attemptHeader tells the application that this is not the first attempt. An
// application that passes it on keeps its callees' sidecars from hedging again.
var attemptHeader = []byte(headerAttempt)

// Service implements Destined: an endpoint that the registry says speaks HTTP is
// not sent in the clear what a service with TLS would have encrypted.
func (c *httpUpstream) Service() string { return c.pool.svc.cfg.Name }

func (c *httpUpstream) OnOpen(conn Conn) {
	c.conn, c.outbound.conn = conn, conn
	c.state = upstreamIdle
	c.pool.opened()
	if c.a == nil { // withdrawn while dialling
		c.pool.put(c)
	} else {
		c.begin(c.a)
	}
	c.pool.dialNext()
}

// begin sends a's request.
func (c *httpUpstream) begin(a *attempt) {
	req := a.request()
	c.a = a
	a.carry(c, a.id())
	n := len(req.Headers)
	if req.Attempt > 0 {
		c.attempt = strconv.AppendUint(c.attempt[:0], uint64(req.Attempt), 10)
		req.Headers = append(req.Headers, protocol.Header{Name: attemptHeader, Value: c.attempt})
	}
	out := http1.AppendRequestHead(c.w.scratch[:0], req)
	req.Headers = req.Headers[:n]
	if len(out) == 0 {
		c.release()
		c.pool.put(c)
		a.failed(FailBadRequest)
		return
	}
	c.state = upstreamHead
	c.toHead = string(req.Method) == "HEAD"
	c.head.Reset()
	if len(req.Body) > http1.WriteTogether && len(req.Trailers) == 0 {
		c.outbound.write(out)
		c.outbound.write(req.Body)
	} else {
		out = http1.AppendBody(out, req.Body, req.Trailers)
		c.outbound.write(out)
	}
	c.w.keepScratch(out)
	c.outbound.watch()
}

func (c *httpUpstream) OnData(b []byte) {
	switch c.state {
	case upstreamIdle: // nobody asked: what it says can't be trusted
		c.pool.remove(c)
		c.close()
	case upstreamHead:
		c.receiveHead(b)
	case upstreamBody:
		c.receiveBody(b, nil)
	}
}

func (c *httpUpstream) receiveHead(b []byte) {
	b, more := http1.SplitHead(b)
	if c.ans == nil {
		c.ans = c.pool.responses.answer()
		c.ans.head = c.w.buffers.Get(len(b))
		c.interim = 0
	}
	in := c.ans.head
	c.w.buffers.Append(in, b, 0)
	for {
		n, err := http1.DecodeResponse(in.B, c.toHead, &c.ans.Response, &c.head, c.w.httpLimits)
		switch {
		case err == http1.ErrIncomplete && len(more) > 0:
			c.w.buffers.Append(in, more, 0)
			more = nil
			continue
		case err == http1.ErrIncomplete:
			c.ans.hold()
			return
		case err == http1.ErrMessageTooLarge && !c.w.shared.streams:
			c.fail(FailTooLarge)
			return
		case err != nil && err != http1.ErrMessageTooLarge || c.ans.Status == 101: // no upgrade was asked for
			c.fail(FailMalformed)
			return
		}
		if c.ans.Status >= 200 {
			c.onHead(n, more)
			return
		}
		// An interim response; ours to drop (RFC 9110 section 15.2).
		if c.interim++; c.interim > http1.MaxInterim {
			c.fail(FailMalformed)
			return
		}
		c.ans.Response.Reset()
		c.head.Reset()
		in.B = append(in.B[:0], in.B[n:]...)
	}
}

// onHead: the first n bytes of the input are the head of the final response, and more
// has come behind the input.
func (c *httpUpstream) onHead(n int, more []byte) {
	ans := c.ans
	rest := ans.head.B[n:]
	switch {
	case c.head.Framing == http1.NoBody:
		c.done(len(rest) + len(more))
		return
	case c.head.Framing == http1.FixedLength && int64(len(rest)) >= c.head.Length:
		end := n + int(c.head.Length)
		ans.Body = ans.head.B[n:end:end]
		c.done(len(ans.head.B) - end + len(more))
		return
	}
	c.state = upstreamBody
	ans.head.B, ans.body = ans.head.B[:n], c.w.buffers.Get(0)
	c.body.Reset(&c.head, c.w.bodyLimits())
	c.receiveBody(rest, more)
}

// receiveBody feeds the body's decoder with b and with more.
func (c *httpUpstream) receiveBody(b, more []byte) {
	http1.ReserveBody(&c.w.buffers, c.ans.body, &c.head, b)
	n, done, err := c.body.Decode(b, c.ans.body)
	switch {
	case err == nil && !done && len(more) > 0:
		c.receiveBody(more, nil)
	case err == http1.ErrMessageTooLarge:
		c.fail(FailTooLarge)
	case err != nil:
		c.fail(FailMalformed)
	case done && !c.long():
		c.finishBody(len(b) - n + len(more))
	default:
		c.ans.hold()
		c.lasting()
	}
}

func (c *httpUpstream) finishBody(surplus int) {
	size := c.body.Length()
	c.ans.Body = c.ans.body.B[:size:size]
	c.ans.Trailers = c.body.Trailers(c.ans.body, c.ans.Trailers[:0])
	c.done(surplus)
}

// done hands the complete answer to its attempt. Bytes after it belong to no
// request: such a connection is not used again.
func (c *httpUpstream) done(surplus int) {
	ans, a := c.ans, c.release()
	c.ans = nil
	c.w.loop.Stop(&c.pause)
	ans.record(c.head.Minor)
	ans.hold()
	c.reused = true
	if c.head.KeepAlive && surplus == 0 && c.conn.Buffered() == 0 {
		c.state = upstreamIdle
		c.pool.put(c)
	} else {
		c.close()
	}
	a.answered(ans)
}

// fail ends the attempt and the connection.
func (c *httpUpstream) fail(f *Failure) {
	c.close()
	if a := c.release(); a != nil {
		a.failed(f)
	}
}

// release unties the connection from its attempt, which is the caller's to end then,
// or to send elsewhere; nil: it has none.
func (c *httpUpstream) release() *attempt {
	a := c.a
	if a != nil {
		c.a = nil
		a.drop()
	}
	return a
}

// close drops what was received and closes the connection.
func (c *httpUpstream) close() {
	if c.state == upstreamClosed {
		return
	}
	c.state = upstreamClosed
	c.outbound.stop()
	c.w.loop.Stop(&c.pause)
	if c.ans != nil {
		c.ans.Release()
		c.ans = nil
	}
	if c.conn != nil {
		c.conn.Close()
	}
}

func (c *httpUpstream) OnClose(err error) {
	c.pool.open--
	if c.state == upstreamDialing {
		c.undialled(c.pool.svc.dialFailed(c.pool.target.lb.Addr, err))
		return
	}
	c.gone(err)
	c.pool.dialNext()
}

// gone: the connection that there was is no more.
func (c *httpUpstream) gone(err error) {
	switch c.state {
	case upstreamClosed:
	case upstreamIdle:
		c.pool.remove(c)
		c.close()
	case upstreamHead:
		c.lost()
	case upstreamBody:
		if err == io.EOF && c.body.Close() == nil && !c.long() { // a body that ends with the connection
			c.head.KeepAlive = false
			c.finishBody(0)
			return
		}
		c.fail(FailReset)
	}
}

// undialled: there is no connection, for f. That the driver has no room for the dial
// says nothing of the endpoint, and one that is open may be free soon.
func (c *httpUpstream) undialled(f *Failure) {
	p := c.pool
	p.dialing--
	if f == FailDials && p.open > p.dialing {
		c.close()
		p.refused(c.release())
		return
	}
	p.backoff = 0
	c.fail(f)
	p.expire()
	p.dialNext()
}

// lost: the peer closed before the head of an answer. On a connection that was
// idle before, the likely reason is that its server had just closed it for
// idleness: the request is sent once more, on a fresh one if there is room, if that is
// safe (RFC 9112 section 9.3.1).
func (c *httpUpstream) lost() {
	a := c.a
	if !c.reused || c.ans != nil || !a.mayReplay() {
		c.fail(FailReset)
		return
	}
	c.close()
	c.release()
	a.replay()
	if c.pool.mayDial() {
		c.pool.dial(a)
	} else {
		c.pool.wait(a)
	}
}
