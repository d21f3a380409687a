package link

import (
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
)

// overBudget reports whether no reassembly may begin: memory is short, and the link holds
// more than its share.
func (s *session) overBudget() bool {
	return s.host.Process.Budget.Full(0) && s.Buffered() > s.host.Share()
}

// OverShare implements exchange.Caller. A link carries the requests of many callers, so small
// ones pass even on a link over its share: together they add up to a share at most.
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
	inFlight := s.streams.InOrder()
	s.close()
	for _, stream := range inFlight {
		stream.Value.AbandonNow()
	}
	s.host.Remove(s)
	s.Transport.Close()
}

// ShedLargest implements exchange.Holder. It drops a request in reassembly, a request in
// flight, or a response that waits to be sent. Encoded frames can't be taken back.
func (s *session) ShedLargest() bool {
	request, received := s.Reader.Largest()
	response, queued := s.Writer.Largest()
	ex, held := exchange.LargestOf(s.streams.Each)
	switch most := max(received, queued, held); {
	case most < exchange.LeastShed:
		return false
	case most == held:
		ex.Shed()
	case most == received:
		s.host.Stats.Failed(fault.Shed)
		s.Reader.Forget(request)
		s.OnReject(request, link.Overload)
	default:
		s.host.Stats.Failed(fault.Shed)
		s.Writer.Drop(response)
		s.Writer.Refused(response, fault.Shed.Refusal(true))
	}
	s.Schedule(false)
	s.Account()
	return true
}
