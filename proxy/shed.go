package proxy

import (
	"maps"
	"slices"
)

// shedLeast is the least that a connection must hold to be closed for it.
const shedLeast = 64 << 10

// shed closes the connections of this loop that hold the most, until the process
// is below the hard mark or none holds much: what one peer piles up is not to be
// paid by all. It runs when the loop has grown past the mark, at the end of the
// turn, since it ends exchanges.
func (w *Worker) shed() {
	for w.proc.ledger.bytes.Load()+w.heldDelta >= w.proc.ledger.hard {
		weight, cut := w.greediest()
		if weight < shedLeast {
			return
		}
		w.stats.Shed++
		w.log.Warn("connection closed: it holds the most, far past limits.buffered", "bytes", weight)
		cut()
	}
}

// greediest finds the downstream connection or the link to an endpoint that
// holds the most.
func (w *Worker) greediest() (weight int, cut func()) {
	for s := w.sessions.head; s != nil; s = s.link().next {
		if n := s.weight(); n > weight {
			weight, cut = n, s.cut
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.services)) {
		set := &w.services[name].set
		for i := range set.Len() {
			up, ok := set.At(i).Ext.(*endpoint).up.(*linkUpstream)
			if !ok || up.cur == nil {
				continue
			}
			if n := up.cur.held + up.cur.outbound.counted; n > weight {
				weight, cut = n, up.cur.lost
			}
		}
	}
	return weight, cut
}

// weight is how many bytes the exchange holds: its request, a bad answer that
// waits for a better one, and what its attempts over HTTP are receiving or have
// not got rid of.
func (ex *exchange) weight() int {
	n := ex.held
	if ex.best != nil {
		n += ex.best.held
	}
	for i := range ex.attempts[:ex.n] {
		if c := ex.attempts[i].conn; c != nil {
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
	n := s.held + s.outbound.counted
	for _, c := range s.calls {
		if c.ex != nil {
			n += c.ex.weight()
		}
	}
	return n
}

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

func (s *linkSession) weight() int {
	n := s.r.Buffered() + s.w.Queued() + s.outbound.counted
	for _, ex := range s.streams {
		n += ex.weight()
	}
	return n
}

func (s *linkSession) cut() {
	var out []*exchange
	for _, id := range inOrder(s.streams) {
		out = append(out, s.streams[id])
	}
	s.close()
	for _, ex := range out {
		ex.forsake()
	}
	s.worker.sessions.remove(s)
	s.conn.Close()
}
