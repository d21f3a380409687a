package shard

// Account is what a connection counts against limits.buffered for its codec: messages that have arrived in part, and
// frames that wait to be sent. It belongs to the session or upstream of the connection. Requests, responses and unsent
// output (Outbound) count their own bytes.
type Account struct{ messages int }

// Count charges s for what has changed since the last call.
func (a *Account) Count(s *Shard, messages int) { s.Recount(&a.messages, messages) }

// Messages returns the bytes of messages that are counted.
func (a *Account) Messages() int { return a.messages }

// TableAccount is an Account of a codec that has interning tables.
type TableAccount struct {
	Account
	tables int
}

// Count charges s for what has changed since the last call.
func (a *TableAccount) Count(s *Shard, messages, tables int) {
	a.Account.Count(s, messages)
	if n := tables - a.tables; n != 0 {
		a.tables = tables
		s.charge(n)
		s.Tables.add(n)
	}
}

// Tables returns the bytes of interning tables that are counted.
func (a *TableAccount) Tables() int { return a.tables }

// Use is what a downstream connection holds for its peer.
type Use struct {
	Held     int // bytes in all
	Unread   int // of these, bytes of responses that wait for the peer to read
	Requests int // in flight, the one that is asked about included; never 0
}

// Excludes reports whether a request of length bytes must be refused while memory is short. A connection that holds no
// more than its share may send any request. Beyond its share, a connection may send a request of at most share/Requests
// bytes, as it may have many callers; not even that while more than a share of responses waits for the peer to read.
func (u Use) Excludes(s *Shard, length int) bool {
	share := s.Share()
	return u.Held > share && (length > share/u.Requests || u.Unread > share)
}
