package proxy

import (
	"maps"
	"slices"
)

// crowded tells that the client is to send no more: memory is short, and it is
// over its share.
func (s *httpSession) crowded() bool { return s.w.shard.shared.budget.full(s.receives()) && s.greedy(nil) }

func (s *httpSession) greedy(*exchange) bool { return s.weight() > s.w.share() }

// crowded tells that no reassembly is to begin.
func (s *linkSession) crowded() bool {
	return s.worker.shared.budget.full(0) && s.weight() > s.worker.share()
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
	if !w.shard.overBudget() {
		return
	}
	for _, other := range w.proc.workers {
		if other != w {
			other.shard.loop.Post(other.shed)
		}
	}
}

// shed takes from the connections of this loop that hold the most, until the
// process is below the hard mark or none holds much: a greedy request, or the
// connection with all that it carries where there is no such thing. With so many
// connections that a little each is too much, that is an equal part of the mark.
func (w *Worker) shed() {
	for w.shard.overBudget() {
		weight, h := w.greediest()
		if weight < min(shedLeast, w.shard.shareOfAll()) {
			return
		}
		if h.relieve() {
			continue
		}
		w.shard.stats.Shed++
		w.shard.log.Warn("connection closed: it holds the most, far past limits.buffered", "bytes", weight)
		h.cut()
	}
}

// greediest finds the downstream connection that holds the most, or a link to an
// endpoint that does so for each of its requests: who asked for them is to pay
// before all who share the link.
func (w *Worker) greediest() (weight int, h holder) {
	rank := 0
	for s := range w.host.sessions.all {
		if n := s.weight(); n > rank {
			rank, weight, h = n, n, s
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.services)) {
		if held, each, up := w.services[name].largest(rank); each > rank {
			rank, weight, h = each, held, up
		}
	}
	return weight, h
}

// largest is the connection to an endpoint that holds the most for each of its
// requests, if that is more than rank.
func (s *service) largest(rank int) (held, each int, h holder) {
	each = rank
	for i := range s.set.Len() {
		if n, m, up := s.set.At(i).Ext.(*endpoint).up.largest(); up != nil && m > each {
			held, each, h = n, m, up
		}
	}
	return held, each, h
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
		if a := &ex.attempts[i]; a.carrier != nil {
			n += a.carrier.buffered(a)
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
	s.w.remove(s)
	s.outbound.stop()
	s.conn.Close()
}
