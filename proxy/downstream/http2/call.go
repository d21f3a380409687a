package http2

import (
	"slices"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/shard"
)

// call is a request and its response.
type call struct {
	session *session
	index   int                // among the calls of the session
	stream  *http2.Stream      // nil once it is over
	ex      *exchange.Exchange // nil once it has its response, or has left the loop
	pipe    *pipe              // of a stream; nil on the loop
	state   callState
	heard   time.Duration // when the last part of the request arrived, or of the response was sent
	unsent  int           // bytes of the response that waited for the client then
	least   int64         // the body of the request will have as many bytes at least; 0 if that is unknown
}

// become changes the state.
func (c *call) become(next callState) {
	c.session.calls.count(c.state, next)
	c.state.become(next)
}

// over ends a call whose stream is over.
func (c *call) over() {
	c.stream = nil
	c.session.calls.remove(c)
}

// cancel ends a call whose client has gone or does not want it any more.
func (c *call) cancel() {
	c.stream = nil
	ex, begun := c.ex, c.state != receiving
	c.ex = nil
	switch {
	case ex == nil:
	case begun:
		if ex.Cancel() {
			c.session.calls.keepCancelled(ex)
		}
	default:
		c.session.host.Pool.Recycle(ex)
	}
	c.closePipe()
	c.session.calls.remove(c)
}

// keep adds b to the body. It returns false if that must leave the loop.
func (c *call) keep(b []byte) bool {
	s, ex := c.session, c.ex
	c.heard = s.host.Loop.Now()
	if ex.BodyBuffer == nil {
		ex.BodyBuffer = s.host.Buffers.Get(len(b))
		if c.least = c.stream.Length(); c.least < 0 {
			c.least = protocol.LeastGRPC(ex.Request.Headers, b)
		}
	}
	if max(c.least, int64(len(ex.BodyBuffer.B)+len(b))) > s.host.MessageLimits.Message {
		return false
	}
	if s.memory.overBudget(ex, len(b)) {
		c.refuse(fault.Overloaded)
		return true
	}
	s.host.Buffers.Append(ex.BodyBuffer, b, int(c.least))
	ex.Charge()
	return true
}

// complete begins a request whose body is complete.
func (c *call) complete(trailers []protocol.Header) {
	s, ex := c.session, c.ex
	if ex.BodyBuffer == nil {
		ex.BodyBuffer = s.host.Buffers.Get(0)
	}
	more := protocol.TextOf(trailers)
	if more > 0 && s.memory.overBudget(ex, more) {
		c.refuse(fault.Overloaded)
		return
	}
	s.host.Buffers.Reserve(ex.BodyBuffer, more, 0)
	size := len(ex.BodyBuffer.B)
	ex.BodyBuffer.B = slices.Grow(ex.BodyBuffer.B, more)
	ex.Request.Trailers = protocol.CopyFields(ex.Request.Trailers[:0], trailers, ex.BodyBuffer)
	ex.Request.Body = ex.BodyBuffer.B[:size:size]
	ex.Charge()
	c.begin()
}

// begin begins the exchange of a request that is complete, or gets its response without its body.
func (c *call) begin() {
	s, ex := c.session, c.ex
	c.become(processing)
	ex.StreamID, ex.CallIndex = uint64(c.stream.ID()), c.index
	r := ex.Route
	if ex.HeadChecked() {
		downstream.FilterTrailers(&ex.Request, &s.origin)
		ex.Route = nil // until Begin has admitted it
	} else {
		r = s.host.FindRoute(ex, &s.origin, protocol.ViaHTTP2)
	}
	ex.Begin(r, s.origin.Listener)
}

// refuse responds with f to a request that has not begun.
func (c *call) refuse(f *fault.Failure) {
	s, ex := c.session, c.ex
	s.host.Refuse(&s.calls, ex, f)
	c.respondFailure(ex, f)
	s.host.Pool.Recycle(ex)
}

// respond sends a whole response. The codec keeps the head's bytes, and the owner's body until it is
// sent.
func (c *call) respond(res *protocol.Response, owner http2.Releaser) {
	s := c.session
	c.become(sending)
	s.ending.noteResponse()
	s.codec.Respond(c.stream, res, owner)
	c.heard, c.unsent = s.host.Loop.Now(), c.stream.Unsent()
	s.output.schedule(s.calls.len() == 1 || s.codec.Encoded() >= mux.BatchSize) // much counts before the turn ends
}

// respondFailure responds to ex with f. A gRPC caller gets it as a status.
func (c *call) respondFailure(ex *exchange.Exchange, f *fault.Failure) {
	c.ex = nil
	var res protocol.Response
	if protocol.IsGRPC(ex.Request.Headers) {
		res = downstream.GRPCFailure(f, ex.RequestID)
	} else {
		res = downstream.FailureResponse(nil, f, c.session.host.DateValue(), ex.RequestID)
	}
	c.respond(&res, nil)
}

// drop ends a call because memory is short.
func (c *call) drop() {
	s := c.session
	switch {
	case c.state == receiving:
		c.refuse(fault.Shed)
	case c.ex != nil:
		c.ex.Shed()
	default:
		shard.ReportStream(s.host.Shard, exchange.ClientOf(&s.calls), "", fault.Shed)
		s.codec.Reset(c.stream, http2.EnhanceYourCalm)
		c.cancel()
	}
}

// held returns the bytes that a call holds.
func (c *call) held() int {
	n := 0
	if c.stream != nil {
		n = c.stream.Held()
	}
	if c.ex != nil {
		n += c.ex.Buffered()
	}
	return n
}

// due returns when a pending call must be looked at.
func (c *call) due() time.Duration {
	s := c.session
	t := &s.host.Config.Timeouts
	if c.state == sending {
		return c.heard + t.Write
	}
	end := c.ex.Arrived + t.Body
	if !s.host.Process.Streams {
		return end
	}
	wait := race.StreamAfter
	if protocol.Interactive(c.ex.Request.Headers) {
		wait = race.GRPCStreamAfter
	}
	return min(end, c.heard+wait)
}

func (c *call) expire(now time.Duration) {
	s := c.session
	switch {
	case c.state == receiving && now >= c.ex.Arrived+s.host.Config.Timeouts.Body:
		c.refuse(fault.SlowBody)
	case c.state == receiving && c.checkProcess() != nil:
		c.heard = now // a stream would be refused, and the request may only be slow
	case c.state == receiving:
		c.leave()
	case c.stream.Unsent() != c.unsent: // the client reads
		c.heard, c.unsent = now, c.stream.Unsent()
	default:
		s.host.Stats.WriteTimeouts++
		s.codec.Reset(c.stream, http2.Cancel)
		c.cancel()
	}
}
