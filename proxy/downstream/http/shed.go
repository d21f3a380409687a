package http

import "github.com/remora-proxy/remora/proxy/exchange"

// overBudget tells that the client is to send no more: memory is short, and it is
// over its share.
func (s *session) overBudget() bool {
	return s.host.Shard.Process.Budget.Full(s.receives()) && s.OverShare(nil)
}

func (s *session) OverShare(*exchange.Exchange) bool { return s.Buffered() > s.host.Share() }

func (s *session) Buffered() int {
	n := s.receives() + s.outbound.Counted
	for _, c := range s.calls {
		if c.ex != nil {
			n += c.ex.Buffered()
		}
	}
	return n
}

// ShedLargest: HTTP/1.1 has no way to withdraw one answer.
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
	s.conn.Close()
}
