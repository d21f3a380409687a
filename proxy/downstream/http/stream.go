package http

import (
	"bytes"

	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// streamHead says how the body of ans, a stream, is framed.
func streamHead(ans *exchange.Response) http1.Head {
	if ans.DeclaredLength < 0 {
		return http1.Head{Framing: http1.Chunked}
	}
	return http1.Head{Framing: http1.FixedLength, Length: ans.DeclaredLength}
}

// replyStream answers the first call with ans, whose body is a stream. It is the
// connection's last answer: the body goes to the client as it comes, off the
// loop.
func (s *session) replyStream(ans *exchange.Response) {
	call := &s.calls[0]
	call.ex, call.last = nil, true
	s.pendingStream = &downstream.StreamAnswer{
		Head: bytes.Clone(s.host.Scratch), Source: ans.TakeSource(),
		Chunks: ans.DeclaredLength < 0 && call.minor >= 1,
	}
	ans.Release()
	s.output.become(outputHandoff)
	s.input.become(inputClosed)
	s.timeout.Stop()
	s.dropInput()
	s.account()
	s.handOffStream()
}

// handOffStream hands the connection over with its last answer, once those before it have
// left. Until then the write timeout watches the client.
func (s *session) handOffStream() {
	client, err := s.conn.Detach()
	switch err {
	case nil:
		a := s.pendingStream
		s.pendingStream = nil
		s.host.Stats.Handoffs[stats.HandoffAnswer]++
		s.close()
		s.host.Streams.Answer(client, a)
	case loop.ErrDetachBuffered:
		s.host.Loop.After(slowRetry, &s.slow)
	case loop.ErrDetachClosed: // OnClose is to come
	default:
		s.pendingStream.Source.Refuse(fault.ResponseTooLarge)
		s.pendingStream = nil
		s.host.Stats.Failed(fault.ResponseTooLarge)
		s.Fail(nil, fault.ResponseTooLarge)
	}
}

func (s *session) dropPendingStream() {
	if s.pendingStream != nil {
		s.pendingStream.Source.Close()
		s.pendingStream = nil
	}
}

// onSlow looks again at a client that was behind.
func (s *session) onSlow() {
	if s.output == outputHandoff {
		s.handOffStream()
		return
	}
	s.startNext()
}
