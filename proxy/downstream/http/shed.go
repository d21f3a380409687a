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

func (s *session) Buffered() int {
	n := s.incomplete() + s.outbound.Counted()
	for _, c := range s.calls {
		if c.ex != nil {
			n += c.ex.Buffered()
		}
	}
	return n
}

// ShedLargest implements exchange.Holder. HTTP/1.1 can't take one response back.
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

// IdleFor implements the session of a worker.
func (s *session) IdleFor() time.Duration {
	if len(s.calls) > 0 {
		return 0
	}
	return s.host.IdleFor(&s.SessionNode)
}

// CloseIdle implements the session of a worker. There is no response.
func (s *session) CloseIdle() {
	if len(s.calls) == 0 {
		s.close()
		s.outbound.Conn.Drain()
	}
}

// startTimeout starts a timeout of the request that is being received.
func (s *session) startTimeout(k loop.TimeoutKind, d time.Duration) {
	s.host.StopIdle(&s.SessionNode)
	s.timeout.Start(k, d)
}

// startIdle starts timeouts.idle.
func (s *session) startIdle() {
	if s.incoming != nil { // of a tunnel
		s.timeout.Stop()
	}
	s.host.StartIdle(&s.SessionNode)
}

func (s *session) stopTimeout() {
	s.host.StopIdle(&s.SessionNode)
	if s.incoming != nil {
		s.timeout.Stop()
	}
}

// beginRequest prepares for a request whose first bytes have arrived.
func (s *session) beginRequest() {
	s.cur = s.host.Pool.Exchange(s)
	s.incoming = s.host.newIncoming()
	s.incoming.session = s
}

// endRequest is called when a request was received, or will not be.
func (s *session) endRequest() {
	if s.incoming != nil {
		s.head.Reset()
		s.timeout.Stop()
		s.incoming.session = nil
		s.host.incoming.Put(s.incoming)
		s.incoming = nil
	}
}

// account charges the memory of incomplete requests and of pendingStream to limits.buffered.
func (s *session) account() {
	now := 0
	if !s.blank() {
		now = protocol.Held(s.in)
	}
	if s.pendingStream != nil {
		now += protocol.Held(s.pendingStream.Source.Buffer)
	}
	s.host.Recount(&s.held, now)
	if s.cur != nil {
		s.cur.Hold()
	}
}

// incomplete returns how many bytes are held of input that is not a complete request.
func (s *session) incomplete() int {
	if s.cur == nil {
		return s.held
	}
	return s.held + s.cur.Held
}
