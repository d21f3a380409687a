package http

import (
	"io"
	"time"

	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
)

// conn is a connection to an HTTP endpoint: it sends one attempt at a time, and ends the attempt with the response.
type conn struct {
	pool      *pool
	shard     *shard.Shard
	transport loop.Conn
	state     connState
	current   *race.Attempt // in flight, or waiting for the dial; may be nil

	reused    bool           // a response has been received, or the connection was idle
	untrusted bool           // the endpoint's certificate is no longer accepted: no other request
	login     bool           // the endpoint may have logged in the connection as a client: no other request
	idleSince time.Duration  // while it is dialled, when the dial began
	idleFor   time.Duration  // how long it was idle just before the request
	toHead    bool           // the request is a HEAD
	response  *race.Response // being received
	head      http1.Head     // of the response
	body      http1.Body     // its decoder
	outbound  shard.Outbound // write timeout

	leaving   leaving
	unawaited unawaited
}

// newConn returns a connection of p for a, or for any attempt if a is nil. The caller dials.
func newConn(p *pool, a *race.Attempt) *conn {
	c := &conn{pool: p, shard: p.shard, current: a, idleSince: p.shard.Loop.Now()}
	c.outbound.Init(c.shard)
	c.leaving.init(c)
	c.unawaited.conn = c
	return c
}

var (
	_ loop.Roomy    = (*conn)(nil)
	_ loop.Named    = (*conn)(nil)
	_ loop.Verified = (*conn)(nil)
)

// ServiceKey implements loop.Destined. With it the driver sends nothing in the clear that a
// service with TLS would encrypt, even if the registry says that the endpoint speaks HTTP.
func (c *conn) ServiceKey() string { return c.pool.service.Shared.Key }

// ServerName implements loop.Named.
func (c *conn) ServerName() string { return c.pool.name }

// OnUntrusted implements loop.Verified. A request in flight gets its response.
func (c *conn) OnUntrusted() {
	c.untrusted = true
	if c.state == idle {
		c.pool.idle.remove(c)
		c.close()
	}
}

func (c *conn) OnOpen(conn loop.Conn) {
	c.transport, c.outbound.Conn = conn, conn
	c.state.become(idle)
	c.pool.dials.onOpened(c)
	if c.current == nil { // cancelled while dialling
		c.pool.put(c)
	} else {
		c.begin(c.current)
	}
	c.pool.dials.next()
}

func (c *conn) begin(a *race.Attempt) {
	c.current = a
	a.Carry(c, a.ID())
	req, own := a.Outgoing().ForApplication()
	out := http1.AppendRequestHead(c.shard.Scratch[:0], req)
	req.Headers = req.Headers[:own]
	if len(out) == 0 {
		c.release()
		c.pool.put(c)
		a.Fail(fault.BadRequest)
		return
	}
	c.state.become(awaitingHead)
	c.login = req.Login
	c.toHead = string(req.Method) == "HEAD"
	c.head.Reset()
	c.leaving.begin()
	if len(req.Body) > http1.WriteTogether && len(req.Trailers) == 0 {
		c.outbound.WriteBoth(out, req.Body)
	} else {
		out = http1.AppendBody(out, req.Body, req.Trailers)
		c.outbound.Write(out)
	}
	c.shard.KeepScratch(out)
	c.outbound.Watch()
}

func (c *conn) OnData(b []byte) {
	switch c.state {
	case idle: // bytes without a request: the connection can't be trusted
		c.pool.idle.remove(c)
		c.close()
	case awaitingHead:
		c.receiveHead(b)
	case awaitingBody:
		c.receiveBody(b, nil)
	}
}

// Room implements loop.Roomy.
func (c *conn) Room() []byte {
	if c.state != awaitingBody {
		return nil
	}
	return c.body.Room(c.response.BodyBuffer)
}

func (c *conn) receiveHead(b []byte) {
	b, more := http1.SplitHead(b)
	if c.response == nil {
		c.response = c.current.NewResponse()
		c.response.HeadBuffer = c.shard.Buffers.Get(len(b))
	}
	in, past := c.response.HeadBuffer, 0 // past has the interim responses of in
	c.shard.Buffers.Append(in, b, 0)
	for {
		n, err := http1.DecodeResponse(in.B[past:], c.toHead, &c.response.Response, &c.head, c.shard.MessageLimits)
		switch {
		case err == http1.ErrIncomplete && len(more) > 0:
			c.shard.Buffers.Append(in, more, 0)
			more = nil
			continue
		case err == http1.ErrIncomplete:
			in.B = append(in.B[:0], in.B[past:]...)
			c.response.Charge()
			return
		case err == http1.ErrMessageTooLarge && !c.shard.Process.Streams:
			c.fail(fault.ResponseTooLarge)
			return
		case err != nil && err != http1.ErrMessageTooLarge || c.response.Status == 101: // no upgrade was requested
			c.fail(fault.Malformed)
			return
		}
		switch {
		case c.response.Status < 200:
			c.current.Interim(&c.response.Response)
			past += n
		case past == 0:
			c.onHead(n, more)
			return
		default: // decoded again, at the beginning of in
			in.B = append(in.B[:0], in.B[past:]...)
			past = 0
		}
		c.response.Response.Reset()
		c.head.Reset()
	}
}

// onHead is called when the first n bytes of the input are the head of the final response.
// more is what was received after the input.
func (c *conn) onHead(n int, more []byte) {
	res := c.response
	rest := res.HeadBuffer.B[n:]
	switch {
	case c.head.Framing == http1.NoBody:
		c.onResponse(len(rest) + len(more))
		return
	case c.head.Framing == http1.FixedLength && int64(len(rest)) >= c.head.Length && c.head.Length <= c.shard.MessageLimits.Message:
		end := n + int(c.head.Length)
		res.Body = res.HeadBuffer.B[n:end:end]
		c.onResponse(len(res.HeadBuffer.B) - end + len(more))
		return
	}
	c.state.become(awaitingBody)
	res.HeadBuffer.B, res.BodyBuffer = res.HeadBuffer.B[:n], c.shard.Buffers.Get(0)
	c.body.Reset(&c.head, c.shard.BodyLimits())
	c.receiveBody(rest, more)
}

// receiveBody decodes b, and then more, as the body of the response.
func (c *conn) receiveBody(b, more []byte) {
	if c.current.Lingering() && c.long() {
		c.drop()
		return
	}
	http1.ReserveBody(&c.shard.Buffers, c.response.BodyBuffer, &c.head, b)
	n, done, err := c.body.Decode(b, c.response.BodyBuffer)
	switch {
	case err == nil && !done && len(more) > 0:
		c.receiveBody(more, nil)
	case err == http1.ErrMessageTooLarge:
		c.fail(fault.ResponseTooLarge)
	case err != nil:
		c.fail(fault.Malformed)
	case done && !c.tooLong():
		c.finishBody(len(b) - n + len(more))
	default:
		c.response.Charge()
		c.leaving.check()
	}
}

// long reports whether the response takes enough memory to be shed. A lingering attempt can't be found
// for that.
func (c *conn) long() bool {
	return max(c.head.Length, int64(c.body.Length())) >= shard.LeastShed
}

// tooLong reports whether the body is longer than limits.message, as announced or so far.
func (c *conn) tooLong() bool {
	return max(c.head.Length, int64(c.body.Length())) > c.shard.MessageLimits.Message
}

// drop ends the response of a lingering attempt before it is complete.
func (c *conn) drop() {
	c.close()
	c.release().Finish(true)
}

// finishBody completes a response whose body was decoded.
func (c *conn) finishBody(surplus int) {
	size := c.body.Length()
	c.response.Body = c.response.BodyBuffer.B[:size:size]
	c.response.Trailers = c.body.Trailers(c.response.BodyBuffer, c.response.Trailers[:0])
	c.onResponse(surplus)
}

// onResponse passes the complete response to its attempt. surplus bytes after it belong to no
// request, so such a connection is not used again.
func (c *conn) onResponse(surplus int) {
	c.unawaited.end()
	res, a := c.response, c.release()
	c.response = nil
	c.leaving.stop()
	c.login = res.Receive(c.head.Minor) || c.login
	res.Charge()
	c.reused = true
	if c.head.KeepAlive && surplus == 0 && !c.untrusted && !c.login && c.transport.Buffered() == 0 {
		c.state.become(idle)
		c.pool.put(c)
	} else {
		c.close()
	}
	a.Respond(res)
}

func (c *conn) fail(f *fault.Failure) {
	c.close()
	if a := c.release(); a != nil {
		a.Fail(f)
	}
}

// release detaches and returns the attempt, or nil. The caller must end it or send it
// elsewhere.
func (c *conn) release() *race.Attempt {
	a := c.current
	if a != nil {
		c.current = nil
		a.Detach()
	}
	return a
}

func (c *conn) close() {
	c.state.become(closed)
	c.outbound.Stop()
	c.leaving.stop()
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
	c.pool.dials.next()
}

func (c *conn) onClosed(err error) {
	switch c.state {
	case closed:
	case idle:
		c.pool.keeping.closed(c.shard.Loop.Now() - c.idleSince)
		c.pool.idle.remove(c)
		c.close()
	case awaitingHead:
		if err == nil || c.response != nil { // the write timeout has closed it, or the server has begun to respond
			c.fail(fault.Reset)
			return
		}
		c.onStale()
	case awaitingBody:
		if err == io.EOF && c.body.Close() == nil && !c.tooLong() { // the body ends with the connection
			c.head.KeepAlive = false // also if the body ended before, and was too long for a message until a reload
			c.finishBody(0)
			return
		}
		c.fail(fault.Reset)
	}
}

// onDialFailed ends the attempt with f. If the driver had no room for the dial, which says
// nothing about the endpoint, the attempt waits for an open connection, if there is one.
func (c *conn) onDialFailed(f *fault.Failure) {
	p := c.pool
	if p.dials.onFailed(f) {
		c.close()
		p.dials.postpone(c.release())
		return
	}
	c.fail(f)
	p.expire()
	p.dials.next()
}

// onStale is called when the peer closed before the first byte of a response. If the connection was
// idle before, its server probably closed it for that. Then the request is sent once more, if
// that is safe (RFC 9112 section 9.3.1), on a new connection if there is room.
func (c *conn) onStale() {
	c.pool.keeping.closed(c.idleFor)
	if !c.reused || !c.current.PayReplay() {
		c.fail(fault.Reset)
		return
	}
	c.close()
	a := c.release()
	a.Replay()
	c.pool.wait(a) // OnClose then dials, if there is room
}

// Cancel implements race.Carrier. The attempt lingers if the application may have the
// request: its response is awaited and dropped, or presumed, so that the application's work stays counted. A stream is not
// awaited, since it may have no end.
func (c *conn) Cancel(a *race.Attempt) (lingers bool) {
	switch {
	case c.state == awaitingBody && (c.leaving.holds() || c.long()):
		c.close()
	case c.state == awaitingHead:
		c.unawaited.begin(a)
		return true
	case c.state != dialing:
		return true
	}
	c.release()
	return false
}

// Abort implements race.Carrier. Only closing the connection takes a request back.
func (c *conn) Abort(*race.Attempt) {
	c.unawaited.end()
	c.release()
	if c.state != dialing {
		c.close()
	}
}

func (c *conn) Buffered(*race.Attempt) int {
	n := c.outbound.Counted()
	if c.response != nil {
		n += c.response.Held
	}
	return n
}
