package downstream

import (
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/shard"
)

// Host is what a loop lends to its downstream sessions.
type Host struct {
	*shard.Shard
	Pool     *exchange.Pool
	Router   *exchange.Router
	Sessions SessionList
	Streams  Streams         // carries streams; nil: nothing does
	Leaser   exchange.Leaser // of this loop, for streams
}

// Acceptor makes the sessions of one protocol on one loop.
type Acceptor interface {
	// Accept makes the session of a connection that came in at l.
	Accept(l *exchange.Listener) loop.Stream
}

// Add lists a session that has opened.
func (h *Host) Add(s session) {
	h.Sessions.add(s)
	h.Shard.Sessions = h.Sessions.n
	h.Stats.Connections++
}

// Closed takes a session out of the list, once the connection has closed.
func (h *Host) Closed(s session) {
	h.Remove(s)
	h.Stats.Connections--
}

// Remove takes a session out of the list, if it is there.
func (h *Host) Remove(s session) {
	h.Sessions.remove(s)
	h.Shard.Sessions = h.Sessions.n
}
