package http

import (
	"bytes"

	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// respondStream responds to the first call with a response whose body is a stream. It is the
// last of the connection: Streams sends the body to the client as it arrives, off the loop.
func (s *session) respondStream(res *exchange.Response) {
	call := &s.calls[0]
	call.ex, call.last = nil, true
	s.pendingStream = &downstream.StreamAnswer{
		Head: bytes.Clone(s.host.Scratch), Source: res.TakeSource(), Leaser: s.host.Leaser.From(exchange.ClientOf(s)),
		Chunks: res.DeclaredLength < 0 && call.minor >= 1,
	}
	res.Release()
	s.output.become(outputHandoff)
	s.input.become(inputClosed)
	s.stopTimeout()
	s.dropInput()
	s.account()
	s.handOffStream()
}

// handOffStream gives the connection to Streams with its last response, once the client has
// read those before. The write timeout bounds the wait.
func (s *session) handOffStream() {
	client, err := s.outbound.Conn.Detach()
	switch err {
	case nil:
		a := s.pendingStream
		s.pendingStream = nil
		s.host.Stats.Handoffs[stats.HandoffAnswer]++
		s.close()
		s.host.Streams.Answer(client, a)
	case loop.ErrDetachBuffered:
		s.retryLater()
	case loop.ErrDetachClosed: // OnClose follows
	default:
		exchange.ReportStream(s.host.Shard, exchange.ClientOf(s), s.pendingStream.Source.Service, fault.ResponseTooLarge)
		s.pendingStream.Source.Refuse(fault.ResponseTooLarge)
		s.pendingStream = nil
		s.Fail(nil, fault.ResponseTooLarge)
	}
}

// dropPendingStream closes a stream that did not leave.
func (s *session) dropPendingStream() {
	if s.pendingStream != nil {
		s.pendingStream.Source.Close()
		s.pendingStream = nil
	}
}

// retryLater makes onSlow run after a pause.
func (s *session) retryLater() {
	if s.slow == nil {
		s.slow = &loop.Timer{Fire: s.onSlow}
	}
	s.host.Loop.After(slowRetry, s.slow)
}

func (s *session) stopSlow() {
	if s.slow != nil {
		s.host.Loop.Stop(s.slow)
	}
}

// onSlow checks again whether a slow client has read.
func (s *session) onSlow() {
	if s.output == outputHandoff {
		s.handOffStream()
		return
	}
	s.startNext()
}
