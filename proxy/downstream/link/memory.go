package link

import (
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/shard"
)

// memory says how much of limits.buffered the link holds for its peer, and drops the largest request while memory is
// short. linkconn.Conn counts the bytes of the codec, and an exchange its own request.
//
// Calls in: the reader asks whether a reassembly may begin (overBudget), and calls whether a request must be refused
// (overShare).
//
// Calls out: calls say what they hold. The largest request is dropped.
type memory struct{ *session }

// overBudget reports whether no reassembly may begin: memory is short, and the link holds
// more than its share.
func (m *memory) overBudget(uint64) bool {
	return m.host.Process.Budget.Full(0) && m.use().Held > m.host.Share()
}

// overShare reports whether ex must be refused while memory is short.
func (m *memory) overShare(ex *exchange.Exchange) bool {
	return m.use().Excludes(m.host.Shard, ex.HeldByRequest())
}

// use returns what the link holds, its tables not included.
func (m *memory) use() shard.Use {
	held, unread := m.calls.held()
	return shard.Use{Held: m.encoded() + held, Unread: unread, Requests: m.calls.len()}
}

// buffered returns how many bytes the link holds.
func (m *memory) buffered() int {
	return m.encoded() + m.Writer.Waiting() + m.calls.requests() + m.Account.Tables()
}

// encoded returns the bytes of messages that have arrived in part, and of frames that wait to be sent.
func (m *memory) encoded() int {
	return m.Reader.Buffered() + m.Writer.Encoded() + m.Outbound.Counted()
}

// reclaimable returns the bytes of the tables of a link that carries no request.
func (m *memory) reclaimable() int {
	if m.calls.len() > 0 || m.Writer.Queued() > 0 {
		return 0
	}
	return m.Account.Tables()
}

// shedLargest drops a request in reassembly, a request in flight, or a response that waits to be sent. Encoded frames
// can't be taken back. It reports whether there was one.
func (m *memory) shedLargest() bool {
	request, received := m.Reader.Largest()
	response, queued := m.Writer.Largest()
	ex, held := m.calls.largest()
	switch most := max(received, queued, held); {
	case most < shard.LeastShed:
		return false
	case most == held:
		ex.Shed()
	case most == received:
		m.Reader.Forget(request)
		m.input.reject(request, link.Overload, fault.Shed)
	default:
		shard.ReportStream(m.host.Shard, exchange.ClientOf(&m.calls), m.serviceName(), fault.Shed)
		m.Writer.Drop(response)
		m.Writer.Refused(response, fault.Shed.Refusal(true))
	}
	m.Schedule(false)
	m.Recount()
	return true
}
