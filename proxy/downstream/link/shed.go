package link

import (
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
)

// overBudget tells that no reassembly is to begin.
func (s *session) overBudget() bool {
	return s.host.Process.Budget.Full(0) && s.Buffered() > s.host.Share()
}

// OverShare lets small requests pass on any link, for it carries those of many
// callers: up to a share more in all.
func (s *session) OverShare(ex *exchange.Exchange) bool {
	share := s.host.Share()
	return ex.Held > share/s.streams.Len() && s.Buffered() > share
}

func (s *session) Buffered() int {
	n := s.Reader.Buffered() + s.Writer.Queued() + s.Outbound.Counted
	for ex := range s.streams.Each {
		n += ex.Buffered()
	}
	return n
}

func (s *session) CloseNow() {
	out := s.streams.InOrder()
	s.close()
	for _, carried := range out {
		carried.Value.AbandonNow()
	}
	s.host.Remove(s)
	s.Transport.Close()
}

// ShedLargest gives up a request that arrives, is worked on, or of which the answer
// waits to leave. What is encoded can't be withdrawn.
func (s *session) ShedLargest() bool {
	part, arrived := s.Reader.Largest()
	answer, waits := s.Writer.Largest()
	ex, held := s.largest()
	switch most := max(arrived, waits, held); {
	case most < exchange.LeastShed:
		return false
	case most == held:
		ex.Shed()
	case most == arrived:
		s.host.Stats.Failed(fault.Shed)
		s.Reader.Forget(part)
		s.OnReject(part, link.Overload)
	default:
		s.host.Stats.Failed(fault.Shed)
		s.Writer.Drop(answer)
		s.Writer.Refused(answer, fault.Shed.Refusal(true))
	}
	s.Schedule(false)
	s.Account()
	return true
}

// largest is the exchange that holds the most, the oldest of equals.
func (s *session) largest() (ex *exchange.Exchange, held int) {
	for other := range s.streams.Each {
		if n := other.Buffered(); n > held || n == held && ex != nil && other.StreamID < ex.StreamID {
			ex, held = other, n
		}
	}
	return ex, held
}
