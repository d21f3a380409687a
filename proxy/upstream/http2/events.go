package http2

import (
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/fault"
)

// events is a conn as the codec sees it: both have a method OnData.
type events conn

var _ http2.Handler = (*events)(nil)

// callOf returns the call of a stream. Each stream of a connection has one until it is over.
func callOf(st *http2.Stream) *call { return st.Owner.(*call) }

// NewRequest implements http2.Handler. A client gets none.
func (*events) NewRequest(*http2.Stream) (*protocol.Request, *bytebufferpool.ByteBuffer) {
	return nil, nil
}

// OnRequest implements http2.Handler.
func (*events) OnRequest(*http2.Stream, bool) {}

// OnOversize implements http2.Handler.
func (*events) OnOversize(*http2.Stream) {}

// NewResponse implements http2.Handler.
func (e *events) NewResponse(st *http2.Stream) (*protocol.Response, *bytebufferpool.ByteBuffer) {
	c := (*conn)(e)
	s := callOf(st)
	if s.flow != nil {
		return s.flow.newResponse(c.shard)
	}
	if s.response == nil {
		s.response = s.attempt.NewResponse()
		s.response.HeadBuffer = c.shard.Buffers.Get(0)
	}
	s.response.HeadBuffer.Reset() // of an interim response
	return &s.response.Response, s.response.HeadBuffer
}

// MayGrow implements http2.Handler. It charges the head before that takes the memory.
func (e *events) MayGrow(st *http2.Stream, n int) bool {
	c, res := (*conn)(e), callOf(st).response
	if res == nil { // of a tunnel, which is passed on at once
		return c.mayHold(n)
	}
	if !c.mayHold(n - res.Held) {
		return false
	}
	c.shard.Recount(&res.Held, n)
	return true
}

// OnInterim implements http2.Handler.
func (e *events) OnInterim(st *http2.Stream) {
	c := (*conn)(e)
	s := callOf(st)
	c.keepalive.useful = true
	if s.flow != nil {
		s.flow.to.Interim(&s.flow.res)
		s.flow.releaseHead(c.shard)
		return
	}
	s.attempt.Interim(&s.response.Response)
}

// OnNoRoom implements http2.Handler.
func (*events) OnNoRoom(*http2.Stream) {}

// OnResponse implements http2.Handler.
func (e *events) OnResponse(st *http2.Stream, end bool) {
	c := (*conn)(e)
	s := callOf(st)
	c.keepalive.useful = true
	switch {
	case s.flow != nil:
		s.onFlowHead(end)
	case end:
		s.finish()
	default:
		s.onHead()
	}
}

// OnData implements http2.Handler.
func (*events) OnData(st *http2.Stream, b []byte, end bool) { callOf(st).onBody(b, end) }

// OnTrailers implements http2.Handler.
func (e *events) OnTrailers(st *http2.Stream, hs []protocol.Header) {
	c := (*conn)(e)
	s := callOf(st)
	c.keepalive.useful = true
	if s.flow != nil {
		s.onFlowEnd(hs)
		return
	}
	switch {
	case !s.takeTrailers(hs):
		s.drop(fault.Shed)
	case s.tooLong():
		s.becomeStream(true)
	default:
		s.finish()
	}
}

// aheadOfDeadline is by how much an endpoint's clock may be first to end a request. Servers of gRPC
// cancel a call whose grpc-timeout has passed.
const aheadOfDeadline = time.Millisecond

// OnReset implements http2.Handler.
func (e *events) OnReset(st *http2.Stream, code http2.Code, why *http2.Error) {
	c := (*conn)(e)
	s := callOf(st)
	s.st = nil
	f := c.failureOf(code, why)
	if s.attempt == nil {
		s.endFlow(f)
		return
	}
	switch {
	case f == fault.Refused && s.response != nil:
		f = fault.Reset // it responds, so it has processed the request, whatever it says
	case code == http2.Cancel && s.attempt.TimeLeft() <= aheadOfDeadline:
		f = fault.Deadline
	}
	s.fail(f)
}

// OnSent implements http2.Handler.
func (e *events) OnSent(st *http2.Stream) {
	c := (*conn)(e)
	s := callOf(st)
	if s.sent = true; s.attempt != nil {
		c.unsent--
	}
	if s.streams && s.response != nil {
		c.shard.Loop.After(0, &s.pause)
	}
}

// OnWritable implements http2.Handler.
func (*events) OnWritable(st *http2.Stream) {
	if s := callOf(st); s.flow != nil {
		s.pump()
	}
}

// OnGoAway implements http2.Handler. OnReset follows for the requests that the endpoint did not take.
// One that goes away before the first request counts as one that can't be connected to, lest it be
// picked because it has nothing in flight.
func (e *events) OnGoAway(last uint32, code http2.Code) {
	c := (*conn)(e)
	if code != http2.NoError {
		c.shard.Log.Warn("the endpoint closes the connection", "peer", c.transport.RemoteAddr(), "code", uint32(code))
	}
	if c.state == open {
		c.state.become(draining)
		c.pool.remove(c)
		c.finishDrain()
		if c.begun == 0 {
			c.pool.onGone()
		}
	}
	c.pool.dialMore()
}

// OnSettings implements http2.Handler.
func (e *events) OnSettings() { (*conn)(e).onSettings() }

// OnPong implements http2.Handler. conn.OnData has noted that the endpoint is alive.
func (*events) OnPong(uint64) {}

// OnBarrier implements http2.Handler.
func (e *events) OnBarrier() { (*conn)(e).onBarrier() }
