package http2

import (
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/shard"
)

// memory counts what the connection holds for its client in limits.buffered, and drops the largest call while memory is
// short. The bodies of messages are charged by their exchange or response, and those of streams by their pipe.
//
// Calls in: who has received or written has it counted again (recount). input and calls ask whether a request may grow
// (overBudget), or must be refused (overShare).
//
// Calls out: calls and output say what they hold. The largest call is dropped (call.drop).
type memory struct {
	*session
	account shard.TableAccount // of the codec, and of pending calls
}

// messages returns how many bytes are counted of the codec, and of pending calls.
func (m *memory) messages() int { return m.account.Messages() }

// overBudget reports whether ex must not grow by n bytes: memory is short, and the connection holds
// more than its share.
func (m *memory) overBudget(ex *exchange.Exchange, n int) bool {
	return m.host.Process.Budget.Full(m.messages()+ex.Held) && m.use().Excludes(m.host.Shard, ex.HeldByRequest()+n)
}

// overShare reports whether ex must be refused while memory is short.
func (m *memory) overShare(ex *exchange.Exchange) bool {
	return m.use().Excludes(m.host.Shard, ex.HeldByRequest())
}

// use returns what the connection holds.
func (m *memory) use() shard.Use {
	held, unread := m.calls.held()
	out := m.output.counted()
	return shard.Use{Held: held + m.codec.BufferedFrames() + out + m.account.Tables(), Unread: unread + out, Requests: m.calls.len()}
}

// recount charges the memory that the codec and pending calls hold to limits.buffered, tables included.
func (m *memory) recount() {
	if m.ending.over() {
		m.account.Count(m.host.Shard, 0, 0)
		return
	}
	m.account.Count(m.host.Shard, m.codec.Encoded()+m.calls.extra(), m.codec.Interned())
}

// reclaimable returns the bytes of the tables of a connection that carries no request.
func (m *memory) reclaimable() int {
	if m.calls.len() > 0 {
		return 0
	}
	return m.account.Tables()
}

// shedLargest drops a request that is incomplete or in flight, or a response that the client does not read. It reports
// whether there was one.
func (m *memory) shedLargest() bool {
	c := m.calls.largest()
	if c == nil {
		return false
	}
	c.drop()
	m.recount()
	m.output.schedule(false)
	return true
}
