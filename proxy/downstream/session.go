package downstream

import "github.com/remora-proxy/remora/proxy/exchange"

// session is a downstream connection as the worker sees it.
type session interface {
	exchange.Holder
	// Buffered is how many bytes are held for the session's peer.
	Buffered() int
	link() *SessionNode
	// Listener is where it came in.
	Listener() *exchange.Listener
	// Drain closes the session once what it carries is answered.
	Drain()
	// Retire has the session close as soon as nothing can be lost by it.
	Retire()
}

// SessionNode is a session's place in its worker's list.
type SessionNode struct {
	next, prev session
	listed     bool
}

func (l *SessionNode) link() *SessionNode { return l }

// SessionList is the sessions of a worker, for draining.
type SessionList struct {
	head session
	n    int
}

func (l *SessionList) add(s session) {
	at := s.link()
	at.next, at.prev, at.listed = l.head, nil, true
	if l.head != nil {
		l.head.link().prev = s
	}
	l.head = s
	l.n++
}

func (l *SessionList) remove(s session) {
	at := s.link()
	if !at.listed {
		return
	}
	if at.prev != nil {
		at.prev.link().next = at.next
	} else {
		l.head = at.next
	}
	if at.next != nil {
		at.next.link().prev = at.prev
	}
	*at = SessionNode{}
	l.n--
}

// All passes on all sessions; the one that is passed on may be removed meanwhile.
func (l *SessionList) All(yield func(session) bool) {
	for s := l.head; s != nil; {
		next := s.link().next
		if !yield(s) {
			return
		}
		s = next
	}
}
