package downstream

import (
	"time"

	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/shard"
)

// session is a downstream connection, as its worker needs it.
type session interface {
	shard.Holder
	node() *SessionNode
	// Buffered returns how many bytes are held for the peer.
	Buffered() int
	// IdleFor returns how long the session has waited for a request, 0 if it does not wait for
	// one or closes without help when it is idle.
	IdleFor() time.Duration
	// HasInput reports whether the next request may wait in the kernel, since the loop is late. It costs a
	// system call.
	HasInput() bool
	// RemoteAddr returns the peer's "ip:port".
	RemoteAddr() string
	// Listener returns the listener that accepted the connection.
	Listener() *exchange.Listener
	// Drain closes the session once the requests in flight have their responses.
	Drain()
	// Retire closes the session as soon as no request can be lost by that. Its listener
	// is gone, but the process goes on.
	Retire()
	// Reclaimable returns the bytes of memory that CloseIdle releases. It is 0 if the session
	// has a request in flight.
	Reclaimable() int
	// CloseIdle closes a session that is idle or reclaimable, as when timeouts.idle expires. A request that
	// the loop has not read yet gets a response, or the peer learns that the request was not processed.
	CloseIdle()
}

// SessionNode is the place of a session in the lists of its loop. Sessions embed it.
type SessionNode struct {
	place int // index in the SessionList plus 1; 0 means not listed

	// Its neighbours among the sessions that wait for a request, and since when it waits.
	previous, next *SessionNode
	since          time.Duration
}

// Reclaimable is for sessions that hold nothing without a request.
func (n *SessionNode) Reclaimable() int { return 0 }

// node is promoted to the session.
func (n *SessionNode) node() *SessionNode { return n }

var _ interface{ node() *SessionNode } = (*SessionNode)(nil)

// SessionList has the open sessions of a loop. While a loop goes backward over it, the
// session that it is at may be removed.
type SessionList []session

func (l *SessionList) add(s session) {
	*l = append(*l, s)
	s.node().place = len(*l)
}

// remove removes s, if it is in the list. The last session gets its place.
func (l *SessionList) remove(s session) {
	at, last := s.node().place-1, len(*l)-1
	if at < 0 {
		return
	}
	moved := (*l)[last]
	(*l)[at], (*l)[last] = moved, nil
	moved.node().place = at + 1
	s.node().place = 0
	*l = (*l)[:last]
}
