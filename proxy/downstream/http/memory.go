package http

// memory counts what the connection holds for its client in limits.buffered. An exchange counts its own request.
//
// Calls in: who has received or dropped input has it counted again (recount). input and leaving ask whether the client
// must not send more (overBudget), and the turn whether a request must be refused (overShare).
//
// Calls out: input and turn say what they hold.
type memory struct{ *session }

func (s *session) memory() memory { return memory{s} }

// buffered returns how many bytes are held for the client.
func (m memory) buffered() int { return m.incomplete() + m.outbound.Counted() + m.turn.held() }

// overShare reports whether the connection holds more than its share.
func (m memory) overShare() bool { return m.buffered() > m.host.Share() }

// overBudget reports whether the client must not send more: memory is short, and the
// connection holds more than its share.
func (m memory) overBudget() bool {
	return m.host.Process.Budget.Full(m.incomplete()) && m.overShare()
}

// incomplete returns how many bytes are counted of input that is not a complete request.
func (m memory) incomplete() int { return m.messages() + m.input.charged() }

// messages returns how many bytes are counted of what the input keeps, and of a stream that waits to leave.
func (m memory) messages() int { return m.account.Messages() }

// recount charges the memory of incomplete requests, and of a stream that waits to leave, to limits.buffered.
func (m memory) recount() {
	m.account.Count(m.host.Shard, m.input.held()+m.turn.heldByStream())
	m.input.charge()
}
