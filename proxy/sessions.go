package proxy

// session is a downstream connection as the worker sees it.
type session interface {
	holder
	// weight is how many bytes are held for the session's peer.
	weight() int
	link() *sessionLink
	// at is where it came in.
	at() *listener
	// drain closes the session once what it carries is answered.
	drain()
	// retire has the session close as soon as nothing can be lost by it.
	retire()
}

// sessionLink is a session's place in its worker's list.
type sessionLink struct {
	next, prev session
	listed     bool
}

func (l *sessionLink) link() *sessionLink { return l }

// sessionList is the sessions of a worker, for draining.
type sessionList struct {
	head session
	n    int
}

func (l *sessionList) add(s session) {
	at := s.link()
	at.next, at.prev, at.listed = l.head, nil, true
	if l.head != nil {
		l.head.link().prev = s
	}
	l.head = s
	l.n++
}

func (l *sessionList) remove(s session) {
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
	*at = sessionLink{}
	l.n--
}

// all passes on all sessions; the one that is passed on may be removed meanwhile.
func (l *sessionList) all(yield func(session) bool) {
	for s := l.head; s != nil; {
		next := s.link().next
		if !yield(s) {
			return
		}
		s = next
	}
}
