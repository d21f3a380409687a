package dubbo

import "github.com/remora-proxy/remora/proxy/exchange"

// overBudget tells that a call of so many bytes is not to be received: memory is short,
// and the connection is over its share.
func (s *session) overBudget(length int) bool {
	return s.host.Process.Budget.Full(s.held) && s.overShare(length, len(s.calls)+1)
}

func (s *session) OverShare(ex *exchange.Exchange) bool { return s.overShare(ex.Held, len(s.calls)) }

// overShare lets small calls pass, for a connection carries those of many callers: up to
// a share more in all.
func (s *session) overShare(length, calls int) bool {
	share := s.host.Share()
	return length > share/calls && s.Buffered() > share
}

func (s *session) Buffered() int {
	n := s.held + s.outbound.Counted
	for _, ex := range s.calls {
		n += ex.Buffered()
	}
	return n
}

// ShedLargest gives up the call that holds the most.
func (s *session) ShedLargest() bool {
	var greediest *exchange.Exchange
	most := 0
	for _, ex := range s.calls {
		if n := ex.Buffered(); n > most {
			greediest, most = ex, n
		}
	}
	if most < exchange.LeastShed {
		return false
	}
	greediest.Shed()
	return true
}

func (s *session) CloseNow() {
	out := s.calls
	s.close()
	for _, ex := range out {
		ex.AbandonNow()
	}
	s.host.Remove(s)
	s.outbound.Stop()
	s.conn.Close()
}
