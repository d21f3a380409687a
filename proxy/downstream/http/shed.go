package http

import (
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/loop"
)

// overBudget reports whether the client must not send more: memory is short, and the
// connection holds more than its share.
func (s *session) overBudget() bool {
	return s.host.Shard.Process.Budget.Full(s.incomplete()) && s.OverShare(nil)
}

func (s *session) OverShare(*exchange.Exchange) bool { return s.Buffered() > s.host.Share() }

// Concurrency implements exchange.Caller. Pipelined requests wait for the one that is in flight.
func (s *session) Concurrency(*exchange.Exchange, int) int { return 1 }

func (s *session) Buffered() int {
	n := s.incomplete() + s.outbound.Counted()
	for _, c := range s.calls {
		switch {
		case c.res != nil:
			n += c.res.Buffered()
		case c.ex != nil:
			n += c.ex.Buffered()
		}
	}
	return n
}

// ShedLargest implements shard.Holder. HTTP/1.1 can't take one response back.
func (s *session) ShedLargest() bool { return false }

func (s *session) CloseNow() {
	var busy *exchange.Exchange
	if s.output == outputBusy {
		busy = s.calls[0].ex
	}
	s.close()
	if busy != nil {
		busy.AbandonNow()
	}
	s.host.Remove(s)
	s.outbound.Stop()
	s.outbound.Conn.Close()
}

// HasInput implements the session of a worker.
func (s *session) HasInput() bool { return loop.HasInput(s.outbound.Conn) }

// IdleFor implements the session of a worker.
func (s *session) IdleFor() time.Duration {
	if len(s.calls) > 0 {
		return 0
	}
	return s.host.IdleFor(&s.SessionNode)
}

// CloseIdle implements the session of a worker. It closes the connection if no request is in flight
// or being received. There is no response.
func (s *session) CloseIdle() {
	if s.waits() && s.output != outputClosed {
		s.close()
		s.outbound.Conn.Drain()
	}
}

// recount charges the memory of incomplete requests and of pendingStream to limits.buffered.
func (s *session) recount() {
	now := 0
	if !s.blank() {
		now = protocol.Held(s.in)
	}
	if s.pendingStream != nil {
		now += protocol.Held(s.pendingStream.Source.Buffer)
	}
	s.account.Count(s.host.Shard, now)
	if s.cur != nil {
		s.cur.Charge()
	}
}

// incomplete returns how many bytes are held of input that is not a complete request.
func (s *session) incomplete() int {
	if s.cur == nil {
		return s.account.Messages()
	}
	return s.account.Messages() + s.cur.Held
}
