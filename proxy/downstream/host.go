package downstream

import (
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/shard"
)

// Host is what the sessions of one loop share.
type Host struct {
	*shard.Shard
	Pool     *exchange.Pool
	Router   *exchange.Router
	Sessions SessionList
	Streams  Streams         // carries streams; nil means that there are none
	Leaser   exchange.Leaser // gives endpoints of this loop to streams
}

// Acceptor returns the session of a connection that l accepted, for one protocol on l's loop.
type Acceptor func(l *exchange.Listener) loop.Stream

// Add lists a session whose connection has opened.
func (h *Host) Add(s session) {
	h.Sessions.add(s)
	h.Shard.Sessions = len(h.Sessions)
	h.Stats.Connections++
}

// OnClosed removes a session from the list when its connection has closed.
func (h *Host) OnClosed(s session) {
	h.Remove(s)
	h.Stats.Connections--
}

// Remove removes a session from the list, if it is there. Its connection still counts.
func (h *Host) Remove(s session) {
	h.Sessions.remove(s)
	h.Shard.Sessions = len(h.Sessions)
}
