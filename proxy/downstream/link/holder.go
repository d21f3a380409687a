package link

import (
	"time"

	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/mux/linkconn"
	"github.com/remora-proxy/remora/proxy/shard"
)

// overBudget reports whether no reassembly may begin: memory is short, and the link holds
// more than its share.
func (s *session) overBudget(uint64) bool {
	return s.host.Process.Budget.Full(0) && s.calls.use().Held > s.host.Share()
}

// Buffered implements shard.Holder.
func (s *session) Buffered() int {
	return s.encoded() + s.Writer.Waiting() + s.calls.requests() + s.Account.Tables()
}

// encoded returns the bytes of messages that have arrived in part, and of frames that wait to be sent.
func (s *session) encoded() int {
	return s.Reader.Buffered() + s.Writer.Encoded() + s.Outbound.Counted()
}

// Reclaimable returns the bytes of the tables of a link that carries no request.
func (s *session) Reclaimable() int {
	if s.calls.len() > 0 || s.Writer.Queued() > 0 {
		return 0
	}
	return s.Account.Tables()
}

// CloseIdle refuses the requests in reassembly. The GOAWAY tells the peer that other requests
// on their way were not processed.
func (s *session) CloseIdle() {
	for _, id := range s.Reader.ForgetAll() {
		s.input.OnReject(id, link.Draining)
	}
	s.Drain()
	if s.State() != linkconn.Closed { // a frame has arrived in part
		s.Transport.Drain()
		s.close()
	}
}

func (s *session) CloseNow() {
	inFlight := s.calls.inOrder()
	s.close()
	for _, entry := range inFlight {
		entry.Value.AbandonNow()
	}
	s.host.Remove(s)
	s.Transport.Close()
}

// ShedLargest implements shard.Holder. It drops a request in reassembly, a request in
// flight, or a response that waits to be sent. Encoded frames can't be taken back.
func (s *session) ShedLargest() bool {
	request, received := s.Reader.Largest()
	response, queued := s.Writer.Largest()
	ex, held := s.calls.largest()
	switch most := max(received, queued, held); {
	case most < shard.LeastShed:
		return false
	case most == held:
		ex.Shed()
	case most == received:
		s.Reader.Forget(request)
		s.input.reject(request, link.Overload, fault.Shed)
	default:
		shard.ReportStream(s.host.Shard, exchange.ClientOf(&s.calls), s.serviceName(), fault.Shed)
		s.Writer.Drop(response)
		s.Writer.Refused(response, fault.Shed.Refusal(true))
	}
	s.Schedule(false)
	s.Recount()
	return true
}

// HasInput implements downstream.session.
func (s *session) HasInput() bool { return s.Transport.HasInput() }

// IdleFor returns 0: an idle link closes without help.
func (s *session) IdleFor() time.Duration { return 0 }
