package proxy

// session is a downstream connection as the worker sees it.
type session interface {
	holder
	// weight is how many bytes are held for the session's peer.
	weight() int
	link() *sessionLink
	// at is where it came in.
	at() *door
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

// drain makes the worker finish: idle connections close, busy ones once they
// are answered, other sidecars are told to go elsewhere. It runs on the loop.
func (w *Worker) drain() {
	for s := w.sessions.head; s != nil; {
		next := s.link().next
		s.drain()
		s = next
	}
}

// Drain stops the intake of all loops: what is in flight is finished, new
// requests on open connections are still answered, the last with "Connection:
// close". It is done when Pending is 0 and no accepted connection is open. Safe
// from any goroutine.
func (p *Process) Drain() {
	p.draining.Store(true)
	for _, w := range p.workers {
		w.loop.Post(w.drain)
	}
}
