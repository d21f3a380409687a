package dubbo

import (
	"slices"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/race"
)

var _ exchange.Caller = (*session)(nil)

// Encode implements exchange.Caller. It refuses responses that are not Dubbo.
func (s *session) Encode(_ *exchange.Exchange, res *race.Response) *fault.Failure {
	if res.RPC == 0 || res.Source != nil {
		return fault.Malformed
	}
	return nil
}

func (s *session) Respond(ex *exchange.Exchange, res *race.Response) {
	s.remove(ex)
	if !ex.Request.OneWay {
		f := dubbo.Frame{
			Serialization: dubbo.SerializationOf(res.Codec), Status: dubbo.Status(res.RPC), ID: int64(ex.StreamID), Body: res.Body,
		}
		if out := s.outgoing(); len(f.Body) <= mux.BatchSize {
			out.B = dubbo.AppendFrame(out.B, &f)
		} else {
			out.B = dubbo.AppendHeader(out.B, &f)
			s.outbound.WriteBoth(out.B, f.Body) // a copy would be memory that limits.buffered does not count
			s.onWritten()
		}
	}
	res.Release()
}

func (s *session) Fail(ex *exchange.Exchange, f *fault.Failure) {
	s.remove(ex)
	if !ex.Request.OneWay {
		out := s.outgoing()
		out.B = dubbo.AppendFailure(out.B, dubbo.SerializationOf(ex.Request.Codec), int64(ex.StreamID), statusOf(f), f.Code, f.Text)
	}
}

// Concurrency implements exchange.Caller.
func (s *session) Concurrency(ex *exchange.Exchange, most int) int {
	return ex.WithOthers(most, slices.Values(s.calls))
}

// Finished implements exchange.Caller. Dubbo has no word for it.
func (s *session) Finished(*exchange.Exchange) {}

// remove removes a call that has its response; the last one in flight gets its place.
func (s *session) remove(ex *exchange.Exchange) {
	last := len(s.calls) - 1
	moved := s.calls[last]
	s.calls[ex.CallIndex], s.calls[last] = moved, nil
	moved.CallIndex = ex.CallIndex
	s.calls = s.calls[:last]
}

// outgoing returns the buffer of frames that are written at the end of the turn.
func (s *session) outgoing() *bytebufferpool.ByteBuffer {
	if s.outgoingFrames != nil && len(s.outgoingFrames.B) > mux.BatchSize {
		s.write()
	}
	if s.outgoingFrames == nil {
		s.outgoingFrames = s.host.Buffers.Get(0)
		s.host.Loop.Defer(&s.out)
	}
	return s.outgoingFrames
}

// flush writes the responses of the turn, and closes a draining connection after the last one.
func (s *session) flush() {
	s.write()
	s.finishDrain()
}

func (s *session) write() {
	if s.outgoingFrames == nil {
		return
	}
	s.outbound.Write(s.outgoingFrames.B)
	s.onWritten()
}

// onWritten releases the buffer of frames, which are written.
func (s *session) onWritten() {
	s.host.Buffers.Release(&s.outgoingFrames)
	s.outbound.Watch()
}

func statusOf(f *fault.Failure) dubbo.Status {
	switch f {
	case fault.Malformed:
		return dubbo.StatusBadResponse
	case fault.NotConvertible:
		return dubbo.StatusServiceNotFound
	case fault.NotAllowed: // as when a filter of Dubbo throws an RpcException, which is not retried
		return dubbo.StatusServiceError
	}
	return dubbo.StatusOf(f.Status)
}
