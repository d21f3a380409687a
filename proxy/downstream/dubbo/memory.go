package dubbo

import (
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/shard"
)

// memory counts what the connection holds for its consumer in limits.buffered, and drops the largest call while memory is
// short. An exchange counts its own call.
//
// Calls in: who has received or dropped input has it counted again (recount). input asks whether a call must be refused
// (overBudget), and so do calls (overShare).
//
// Calls out: input, calls and output say what they hold. The largest call is dropped.
type memory struct {
	*session
	account shard.Account // of an incomplete frame
}

// overBudget reports whether a call of length bytes must be refused: memory is short, and the
// connection holds more than its share.
func (m *memory) overBudget(length int) bool {
	return m.host.Process.Budget.Full(m.account.Messages()) && m.use(m.calls.len()+1).Excludes(m.host.Shard, length)
}

// overShare reports whether ex must be refused while memory is short.
func (m *memory) overShare(ex *exchange.Exchange) bool {
	return m.use(m.calls.len()).Excludes(m.host.Shard, ex.HeldByRequest())
}

// use returns what the connection holds. Its responses are not kept back for a client that does not read.
func (m *memory) use(calls int) shard.Use { return shard.Use{Held: m.buffered(), Requests: calls} }

// buffered returns how many bytes are held for the consumer.
func (m *memory) buffered() int { return m.account.Messages() + m.output.counted() + m.calls.held() }

// recount charges the memory of an incomplete frame to limits.buffered.
func (m *memory) recount() { m.account.Count(m.host.Shard, m.input.held()) }

// shedLargest drops the largest call, and reports whether it is large enough.
func (m *memory) shedLargest() bool {
	ex, held := m.calls.largest()
	if held < shard.LeastShed {
		return false
	}
	ex.Shed()
	return true
}
