package http2

import (
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/fault"
)

// events is a conn as its codec sees it: what is received from either has a method OnData.
type events struct{ *conn }

var _ http2.ResponseHandler = events{}

// callOf returns the call of a stream. Each stream of a connection has one until it is over.
func callOf(st *http2.Stream) *call { return st.Owner.(*call) }

// NewResponse implements http2.ResponseHandler.
func (e events) NewResponse(st *http2.Stream) (*protocol.Response, *bytebufferpool.ByteBuffer) {
	s := callOf(st)
	if s.flow != nil {
		return s.flow.tunnel.newResponse(e.shard)
	}
	if s.response == nil {
		s.response = s.attempt.NewResponse()
		s.response.HeadBuffer = e.shard.Buffers.Get(0)
	}
	s.response.HeadBuffer.Reset() // of an interim response
	return &s.response.Response, s.response.HeadBuffer
}

// MayGrow implements http2.Handler. It charges the head before that takes the memory.
func (e events) MayGrow(st *http2.Stream, n int) bool {
	res := callOf(st).response
	if res == nil { // of a tunnel, which is passed on at once
		return e.mayHold(n)
	}
	if !e.mayHold(n - res.Held) {
		return false
	}
	e.shard.Recount(&res.Held, n)
	return true
}

// OnInterim implements http2.ResponseHandler.
func (e events) OnInterim(st *http2.Stream) {
	s := callOf(st)
	e.keepalive.useful = true
	if s.flow != nil {
		s.flow.tunnel.onInterim()
		return
	}
	s.attempt.Interim(&s.response.Response)
}

// OnResponse implements http2.ResponseHandler.
func (e events) OnResponse(st *http2.Stream, end bool) {
	s := callOf(st)
	e.keepalive.useful = true
	switch {
	case s.flow != nil:
		s.flow.tunnel.onHead(end)
	case end:
		s.finish()
	default:
		s.onHead()
	}
}

// OnData implements http2.Handler.
func (events) OnData(st *http2.Stream, b []byte, end bool) { callOf(st).onBody(b, end) }

// OnTrailers implements http2.Handler.
func (e events) OnTrailers(st *http2.Stream, hs []protocol.Header) {
	s := callOf(st)
	e.keepalive.useful = true
	if s.flow != nil {
		s.flow.onEnd(hs)
		return
	}
	if !s.takeTrailers(hs) {
		s.drop(fault.Shed)
		return
	}
	s.finish()
}

// aheadOfDeadline is by how much an endpoint's clock may be first to end a request. gRPC servers
// cancel a call whose grpc-timeout has passed.
const aheadOfDeadline = time.Millisecond

// OnReset implements http2.Handler.
func (e events) OnReset(st *http2.Stream, code http2.Code, why *http2.Error) {
	s := callOf(st)
	s.st = nil
	f := e.failureOf(code, why)
	if s.attempt == nil {
		s.flow.fail(f)
		return
	}
	switch {
	case f.Free() && s.response != nil:
		f = fault.Reset // it responds, so it has processed the request, whatever it says
	case code == http2.Cancel && s.attempt.Outgoing().TimeLeft() <= aheadOfDeadline:
		f = fault.Deadline
	}
	s.fail(f)
}

// OnSent implements http2.Handler.
func (e events) OnSent(st *http2.Stream) {
	s := callOf(st)
	if s.sent = true; s.attempt != nil {
		e.unsent--
	}
}

// OnWritable implements http2.Handler.
func (events) OnWritable(st *http2.Stream) {
	callOf(st).flow.tunnel.pump() // only tunnels send in pieces
}

// OnGoAway implements http2.ResponseHandler. OnReset follows for the requests that the endpoint did not take.
func (e events) OnGoAway(last uint32, code http2.Code) {
	if code != http2.NoError {
		e.shard.Log.Warn("the endpoint closes the connection", "peer", e.transport.RemoteAddr(), "code", uint32(code))
	}
	e.drain()
}

// OnSettings implements http2.ResponseHandler.
func (e events) OnSettings() {
	if e.state == greeting {
		e.handshake.onSettings()
		return
	}
	e.pool.onRoom(e.conn)
}

// OnBarrier implements http2.ResponseHandler.
func (e events) OnBarrier() { e.withdrawn.onAnswer(e.conn) }

// failureOf returns the failure of a request whose stream was reset.
func (e events) failureOf(code http2.Code, why *http2.Error) *fault.Failure {
	switch {
	case why == http2.ErrUnprocessed:
		return fault.GoAway
	case why == http2.ErrNoRoom:
		return fault.Shed
	case why == http2.ErrHeadSize:
		return fault.ResponseTooLarge
	case why != nil:
		e.shard.Log.Warn("malformed response", "peer", e.transport.RemoteAddr(), "error", why)
		return fault.Malformed
	case code == http2.RefusedStream:
		return fault.Refused
	}
	return fault.Reset
}
