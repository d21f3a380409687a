package proxy

import (
	"maps"
	"slices"
)

// share is how much an accepted connection may hold and still get new work done
// with limits.buffered reached: an equal part of what there is up to the hard
// mark. So one peer that piles up memory stops itself and not others, and
// many that stay within their shares don't take the loops past the hard mark.
func (w *Worker) share() int {
	return w.part(w.proc.ledger.room())
}

// part divides bytes among the loops, and this one's among its connections.
func (w *Worker) part(bytes int64) int {
	return int(bytes) / w.proc.loops / max(1, w.sessions.n)
}

// crowded tells that the client is to send no more: memory is short, and it is
// over its share.
func (s *httpSession) crowded() bool { return s.w.proc.ledger.full(s.receives()) && s.greedy(nil) }

func (s *httpSession) greedy(*exchange) bool { return s.weight() > s.w.share() }

// crowded tells that no reassembly is to begin.
func (s *linkSession) crowded() bool {
	return s.worker.proc.ledger.full(0) && s.weight() > s.worker.share()
}

// greedy lets small requests pass on any link, for it carries those of many
// callers: up to a share more in all.
func (s *linkSession) greedy(ex *exchange) bool {
	share := s.worker.share()
	return ex.held > share/s.streams.len() && s.weight() > share
}

// holder is a connection that memory is held for.
type holder interface {
	// relieve gives up the request that holds the most, if that is shedLeast or
	// more and the connection can do without it.
	relieve() bool
	// cut closes the connection at once and gives up what it asked for, at the
	// applications too.
	cut()
}

// shedLeast is the least that a connection must hold to be closed for it, while
// connections are few, and a request to be given up.
const shedLeast = 64 << 10

// shedAll gets the process below the hard mark: what one peer piles up is not to
// be paid by all. It runs when the loop has grown past the mark, at the end of
// the turn, since it ends exchanges. What is held elsewhere is the other loops' to
// close.
func (w *Worker) shedAll() {
	w.shed()
	if !w.proc.ledger.over(w.heldDelta) {
		return
	}
	for _, other := range w.proc.workers {
		if other != w {
			other.loop.Post(other.shed)
		}
	}
}

// shed takes from the connections of this loop that hold the most, until the
// process is below the hard mark or none holds much: a greedy request, or the
// connection with all that it carries where there is no such thing. With so many
// connections that a little each is too much, that is an equal part of the mark.
func (w *Worker) shed() {
	l := &w.proc.ledger
	for l.over(w.heldDelta) {
		weight, h := w.greediest()
		if weight < min(shedLeast, w.part(l.hard.Load())) {
			return
		}
		if h.relieve() {
			continue
		}
		w.stats.Shed++
		w.log.Warn("connection closed: it holds the most, far past limits.buffered", "bytes", weight)
		h.cut()
	}
}

// greediest finds the downstream connection that holds the most, or a link to an
// endpoint that does so for each of its requests: who asked for them is to pay
// before all who share the link.
func (w *Worker) greediest() (weight int, h holder) {
	rank := 0
	for s := w.sessions.head; s != nil; s = s.link().next {
		if n := s.weight(); n > rank {
			rank, weight, h = n, n, s
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.services)) {
		set := &w.services[name].set
		for i := range set.Len() {
			up, ok := set.At(i).Ext.(*endpoint).up.(*linkUpstream)
			if !ok || up.cur == nil {
				continue
			}
			n := up.cur.held + up.cur.outbound.counted
			if each := n / max(1, up.cur.carried()); each > rank {
				rank, weight, h = each, n, up.cur
			}
		}
	}
	return weight, h
}

// weight is how many bytes the exchange holds: its request, a bad answer that
// waits for a better one, what its attempts are receiving, and what they have not
// got rid of over HTTP.
func (ex *exchange) weight() int {
	n := ex.held
	if ex.best != nil {
		n += ex.best.held
	}
	for i := range ex.attempts[:ex.n] {
		a := &ex.attempts[i]
		if l := a.link; l != nil {
			n += l.r.Assembled(a.stream)
		}
		if c := a.conn; c != nil {
			n += c.outbound.counted
			if c.ans != nil {
				n += c.ans.held
			}
		}
	}
	return n
}

// forsake gives up a withdrawn exchange's attempts, wherever they are.
func (ex *exchange) forsake() {
	if ex.state == exchangeAbandoned {
		ex.onDeadline()
	}
}

func (s *httpSession) weight() int {
	n := s.receives() + s.outbound.counted
	for _, c := range s.calls {
		if c.ex != nil {
			n += c.ex.weight()
		}
	}
	return n
}

// relieve: HTTP/1.1 has no way to withdraw one answer.
func (s *httpSession) relieve() bool { return false }

func (s *httpSession) cut() {
	var busy *exchange
	if s.busy {
		busy = s.calls[0].ex
	}
	s.close()
	if busy != nil {
		busy.forsake()
	}
	s.w.sessions.remove(s)
	s.outbound.stop()
	s.conn.Close()
}
