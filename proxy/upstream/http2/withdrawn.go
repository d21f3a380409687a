package http2

import "slices"

// withdrawn are the calls that linger after a reset. A barrier that the endpoint answers says that it
// has read the resets before it. At most one is under way.
type withdrawn struct {
	covered []*call // by the barrier
	later   []*call // reset after it
	waiting bool    // for the answer to the barrier
}

func (w *withdrawn) add(c *conn, s *call) {
	w.later = append(w.later, s)
	w.send(c)
}

func (w *withdrawn) send(c *conn) {
	if !w.waiting && len(w.later) > 0 && c.h2.Barrier() {
		w.waiting = true
		w.covered, w.later = w.later, w.covered[:0]
		c.shard.Loop.Defer(&c.out)
	}
}

func (w *withdrawn) remove(s *call) {
	if i := slices.Index(w.covered, s); i >= 0 {
		w.covered[i] = nil // onAnswer may be at it
	}
	if i := slices.Index(w.later, s); i >= 0 {
		w.later = slices.Delete(w.later, i, i+1)
	}
}

// onAnswer ends the attempts whose resets the endpoint has read. It is waiting until all have ended, as others may be
// withdrawn meanwhile. The connection stays open, since nothing closes it while the codec decodes.
func (w *withdrawn) onAnswer(c *conn) {
	for i := 0; i < len(w.covered); i++ {
		s := w.covered[i]
		if s == nil {
			continue
		}
		w.covered[i] = nil
		a := s.detach()
		c.onFree()
		a.Finish(false)
	}
	w.covered, w.waiting = w.covered[:0], false
	w.send(c)
}
