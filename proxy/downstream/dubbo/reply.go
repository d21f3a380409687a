package dubbo

import (
	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/mux"
)

var _ exchange.Caller = (*session)(nil)

// Encode implements replier.
func (s *session) Encode(_ *exchange.Exchange, ans *exchange.Response) *fault.Failure {
	if ans.RPC == 0 || ans.Source != nil { // not of Dubbo
		return fault.Malformed
	}
	return nil
}

// Respond implements replier.
func (s *session) Respond(ex *exchange.Exchange, ans *exchange.Response) {
	s.remove(ex)
	if !ex.Request.OneWay {
		out := s.outgoing()
		out.B = dubbo.AppendFrame(out.B, &dubbo.Frame{
			Serialization: dubbo.SerializationOf(ans.Codec), Status: dubbo.Status(ans.RPC), ID: int64(ex.StreamID), Body: ans.Body,
		})
	}
	ans.Release()
}

// Fail implements replier.
func (s *session) Fail(ex *exchange.Exchange, f *fault.Failure) {
	s.remove(ex)
	if !ex.Request.OneWay {
		out := s.outgoing()
		out.B = dubbo.AppendFailure(out.B, dubbo.SerializationOf(ex.Request.Codec), int64(ex.StreamID), statusOf(f), f.Code, f.Text)
	}
}

// Finished implements replier.
func (s *session) Finished(*exchange.Exchange) {}

// remove takes a call that is being answered out of those that are out. The last
// one gets its place.
func (s *session) remove(ex *exchange.Exchange) {
	last := len(s.calls) - 1
	moved := s.calls[last]
	s.calls[ex.CallIndex], s.calls[last] = moved, nil
	moved.CallIndex = ex.CallIndex
	s.calls = s.calls[:last]
}

// outgoing is where what is to leave at the end of the turn is put.
func (s *session) outgoing() *bytebufferpool.ByteBuffer {
	if s.replies != nil && len(s.replies.B) > mux.BatchSize {
		s.write()
	}
	if s.replies == nil {
		s.replies = s.host.Buffers.Get(0)
		s.host.Loop.Defer(&s.out)
	}
	return s.replies
}

// flush writes what was answered, and closes a draining connection when that was
// all.
func (s *session) flush() {
	s.write()
	s.finish()
}

func (s *session) write() {
	if s.replies == nil {
		return
	}
	s.outbound.Write(s.replies.B)
	s.host.Buffers.Put(s.replies)
	s.replies = nil
	s.outbound.Watch()
}

// statusOf is the status that tells a Dubbo caller of f.
func statusOf(f *fault.Failure) dubbo.Status {
	switch f {
	case fault.Malformed:
		return dubbo.StatusBadResponse
	case fault.NotConvertible:
		return dubbo.StatusServiceNotFound
	}
	return dubbo.StatusOf(f.Status)
}
