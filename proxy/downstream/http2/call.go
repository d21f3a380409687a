package http2

import (
	"slices"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/shard"
)

// events are the methods of a session that its codec calls.
type events session

var _ http2.Handler = (*events)(nil)

// call is a request and its response.
type call struct {
	session *session
	index   int                // in session.calls
	stream  *http2.Stream      // nil once it is over
	ex      *exchange.Exchange // nil once it has its response, or has left the loop
	pipe    *pipe              // of a stream; nil on the loop
	state   callState
	heard   time.Duration // when the last part of the request arrived, or of the response was sent
	unsent  int           // bytes of the response that waited for the client then
}

// callState is what a call waits for.
type callState uint8

const (
	receiving  callState = iota // the rest of the request
	processing                  // the response
	sending                     // the client, to read the response
	streaming                   // a goroutine has it
)

// pends reports whether a timeout of the session bounds the state.
func (s callState) pends() bool { return s == receiving || s == sending }

// become changes the state. All changes are possible but those back, and from sending.
func (c *call) become(next callState) {
	if next == c.state {
		return
	}
	if c.state.pends() {
		c.session.pending--
	}
	if next.pends() {
		c.session.pending++
	}
	c.state = next
}

// newCall adds the call of a new stream.
func (s *session) newCall(st *http2.Stream) *call {
	var c *call
	if n := len(s.free); n > 0 {
		c, s.free = s.free[n-1], s.free[:n-1]
	} else {
		c = &call{}
	}
	*c = call{session: s, index: len(s.calls), stream: st, ex: s.host.Pool.Exchange(s)}
	s.pending++
	s.calls = append(s.calls, c)
	st.Owner = c
	return c
}

const maxFree = 4096 // calls that a loop keeps for the next requests

// remove removes a call whose stream is over and whose pipe is closed. The last one in the list
// gets its place.
func (c *call) remove() {
	s := c.session
	if c.stream != nil || c.pipe != nil {
		return
	}
	if c.state.pends() {
		s.pending--
	}
	if s.calls != nil { // else the session closes
		last := len(s.calls) - 1
		moved := s.calls[last]
		s.calls[c.index], s.calls[last] = moved, nil
		moved.index = c.index
		if moved.ex != nil {
			moved.ex.CallIndex = moved.index
		}
		s.calls = s.calls[:last]
	}
	*c = call{}
	if len(s.free) < maxFree {
		s.free = append(s.free, c)
	}
}

// over ends a call whose stream is over.
func (c *call) over() {
	c.stream = nil
	c.remove()
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
			c.session.keepCancelled(ex)
		}
	default:
		c.session.host.Pool.Recycle(ex)
	}
	c.closePipe()
	c.remove()
}

// NewRequest implements http2.Handler.
func (e *events) NewRequest(st *http2.Stream) (*protocol.Request, *bytebufferpool.ByteBuffer) {
	s := (*session)(e)
	ex := s.newCall(st).ex
	ex.HeadBuffer = s.host.Buffers.Get(0)
	return &ex.Request, ex.HeadBuffer
}

// MayGrow implements http2.Handler. It charges the head before that takes the memory.
func (e *events) MayGrow(st *http2.Stream, n int) bool {
	s := (*session)(e)
	ex := st.Owner.(*call).ex
	if s.overBudget(ex, n-ex.HeldByRequest()) {
		return false
	}
	ex.ChargeHead(n)
	return true
}

// OnNoRoom implements http2.Handler.
func (e *events) OnNoRoom(st *http2.Stream) {
	(*session)(e).count()
	st.Owner.(*call).refuse(fault.Overloaded)
}

// OnRequest implements http2.Handler.
func (e *events) OnRequest(st *http2.Stream, end bool) {
	s := (*session)(e)
	c := st.Owner.(*call)
	s.count()
	c.ex.Charge()
	switch {
	case len(c.ex.Request.Path) == 0: // CONNECT
		c.refuse(fault.Unsupported)
		return
	case end:
		c.begin()
		return
	case s.overBudget(c.ex, 0): // a client can keep it open, and send no body that would be refused
		c.refuse(fault.Overloaded)
		return
	}
	now := s.host.Loop.Now()
	c.ex.Arrived, c.heard = now, now
	waits, ex := st.ExpectsContinue(), c.ex
	switch {
	case st.Length() > s.host.MessageLimits.Message, waits && s.origin.Listener.Expects && s.host.Process.Streams:
		c.leave()
	case waits && ex.CheckMessageHead(s.host.FindRoute(ex, &s.origin, protocol.ViaHTTP2), s.origin.Listener):
		c.begin()
	case waits:
		s.codec.Interim(st, &protocol.Response{Status: 100})
	}
}

// count counts a request. The last one that limits.requests allows drains the connection.
func (s *session) count() {
	if s.requests++; s.requests == s.host.Config.Limits.Requests {
		s.Drain()
	}
}

// OnOversize implements http2.Handler.
func (e *events) OnOversize(st *http2.Stream) {
	s := (*session)(e)
	s.count()
	st.Owner.(*call).refuse(fault.OfRequest(http1.ErrHeaderTooLarge))
}

// OnData implements http2.Handler.
func (e *events) OnData(st *http2.Stream, b []byte, end bool) {
	s := (*session)(e)
	c := st.Owner.(*call)
	if c.state == receiving && !c.keep(b) {
		c.leave()
	}
	switch {
	case c.state == streaming && c.pipe.receives:
		c.pipe.data(b, end)
	case c.state == receiving && end:
		c.complete(nil)
	case c.state == receiving, !end:
		s.codec.Consumed(st, len(b))
	}
}

// keep adds b to the body. It returns false if that must leave the loop.
func (c *call) keep(b []byte) bool {
	s, ex := c.session, c.ex
	c.heard = s.host.Loop.Now()
	if ex.BodyBuffer == nil {
		ex.BodyBuffer = s.host.Buffers.Get(len(b))
	}
	if int64(len(ex.BodyBuffer.B)+len(b)) > s.host.MessageLimits.Message {
		return false
	}
	if s.overBudget(ex, len(b)) {
		c.refuse(fault.Overloaded)
		return true
	}
	s.host.Buffers.Append(ex.BodyBuffer, b, int(max(0, c.stream.Length())))
	ex.Charge()
	return true
}

// OnTrailers implements http2.Handler.
func (e *events) OnTrailers(st *http2.Stream, hs []protocol.Header) {
	switch c := st.Owner.(*call); {
	case c.state == streaming && c.pipe.receives:
		c.pipe.trailers(hs)
	case c.state == receiving:
		c.complete(hs)
	}
}

// complete begins a request whose body is complete.
func (c *call) complete(trailers []protocol.Header) {
	s, ex := c.session, c.ex
	if ex.BodyBuffer == nil {
		ex.BodyBuffer = s.host.Buffers.Get(0)
	}
	more := protocol.TextOf(trailers)
	if more > 0 && s.overBudget(ex, more) {
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
	exchange.Refuse(s.host.Shard, s, ex, f)
	shard.LogExample(s.host.Shard, exchange.ClientOf(s), "", ex.Example(), f)
	c.respondFailure(ex, f)
	s.host.Pool.Recycle(ex)
}

// OnReset implements http2.Handler.
func (e *events) OnReset(st *http2.Stream, _ http2.Code, why *http2.Error) {
	s := (*session)(e)
	if why != nil {
		s.report("HTTP/2 stream reset", why)
	}
	st.Owner.(*call).cancel()
}

// These are for the dialling end, or nothing depends on them.

// NewResponse implements http2.Handler.
func (e *events) NewResponse(*http2.Stream) (*protocol.Response, *bytebufferpool.ByteBuffer) {
	return nil, nil
}

// OnInterim implements http2.Handler.
func (e *events) OnInterim(*http2.Stream) {}

// OnResponse implements http2.Handler.
func (e *events) OnResponse(*http2.Stream, bool) {}

// OnSettings implements http2.Handler.
func (e *events) OnSettings() {}

// OnGoAway implements http2.Handler: a client that sends no more requests closes the connection.
func (e *events) OnGoAway(uint32, http2.Code) {}

// OnPong implements http2.Handler.
func (e *events) OnPong(uint64) {}

// OnBarrier implements http2.Handler.
func (e *events) OnBarrier() {}
