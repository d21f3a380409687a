package downstream

import "github.com/remora-proxy/remora/proxy/exchange"

// nodeOwner is what a SessionNode adds to the session that embeds it.
type nodeOwner interface{ node() *SessionNode }

var _ nodeOwner = (*SessionNode)(nil)

// session is a downstream connection, as its worker needs it.
type session interface {
	exchange.Holder
	nodeOwner
	// Buffered returns how many bytes are held for the peer.
	Buffered() int
	// Listener returns the listener that accepted the connection.
	Listener() *exchange.Listener
	// Drain closes the session once the requests in flight have their responses.
	Drain()
	// Retire closes the session as soon as no request can be lost by that. Its listener
	// is gone, but the process goes on.
	Retire()
}

// SessionNode links a session into the list of its loop. Sessions embed it.
type SessionNode struct {
	next, prev session
	listed     bool
}

func (n *SessionNode) node() *SessionNode { return n }

// SessionList has the open sessions of a loop.
type SessionList struct {
	head session
	n    int
}

func (l *SessionList) add(s session) {
	at := s.node()
	at.next, at.prev, at.listed = l.head, nil, true
	if l.head != nil {
		l.head.node().prev = s
	}
	l.head = s
	l.n++
}

func (l *SessionList) remove(s session) {
	at := s.node()
	if !at.listed {
		return
	}
	if at.prev != nil {
		at.prev.node().next = at.next
	} else {
		l.head = at.next
	}
	if at.next != nil {
		at.next.node().prev = at.prev
	}
	*at = SessionNode{}
	l.n--
}

// All yields all sessions. The yielded one may be removed meanwhile.
func (l *SessionList) All(yield func(session) bool) {
	for s := l.head; s != nil; {
		next := s.node().next
		if !yield(s) {
			return
		}
		s = next
	}
}
