package proxy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/shard"
)

// shedAll brings the process below the hard mark, so that a peer that fills memory does
// not harm the others. It runs when this loop has passed the mark, at the end of the
// turn, because it ends exchanges. Whoever holds more than an equal part of all memory
// goes first, on this loop and then on the others: only if that is not enough, the
// largest of each loop follow. The process has one such round at a time. So no loop ends its
// largest while another has not yet looked for those above an equal part. A loop that passes the
// mark during a round begins none. It tries again when it takes in more.
func (w *Worker) shedAll() {
	equal := w.shard.ShareOfAll()
	w.shed(equal)
	if !w.shard.OverBudget() {
		return
	}
	if len(w.proc.workers) == 1 {
		w.shedLargest()
		return
	}
	if !w.proc.shedding.CompareAndSwap(false, true) {
		return
	}
	w.proc.onLoops(func(each *Worker) { each.shed(equal) }, func() {
		w.proc.onLoops((*Worker).shedLargest, func() { w.proc.shedding.Store(false) })
	})
}

// shedLargest sheds from holders that hold much: LeastShed, or less if there are very many
// connections.
func (w *Worker) shedLargest() {
	w.shed(min(shard.LeastShed, w.shard.ShareOfAll()))
}

// shed releases memory of the connections of this loop that hold the most, if that is at least
// so many bytes, until the process is below the hard mark by so much that it does not pass
// that again at once. It ends the largest request of a connection, or closes the connection if
// that is not possible.
func (w *Worker) shed(least int) {
	for over := w.shard.OverBudget(); over; over = !w.shard.Relieved() {
		if w.host.Pool.Copies.Shed() { // nobody waits for it
			continue
		}
		held, h := w.largestHolder()
		if held < least {
			return
		}
		if h.ShedLargest() {
			continue
		}
		w.shard.Stats.Shed++
		w.shard.Log.Warn("connection closed: largest holder of memory, limits.buffered exceeded", "bytes", held)
		h.CloseNow()
	}
}

// largestHolder returns the connection that holds the most memory, and how many bytes. An
// upstream connection counts with its bytes per request, so that a caller with a large
// request is ended before the connection that many callers share.
func (w *Worker) largestHolder() (held int, h shard.Holder) {
	most := 0
	for _, s := range slices.Backward(w.host.Sessions) {
		if n := s.Buffered(); n > most {
			most, held, h = n, n, s
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.services)) {
		if all, perRequest, up := w.services[name].Largest(most); perRequest > most {
			most, held, h = perRequest, all, up
		}
	}
	return held, h
}

// ShedIdle closes a part of the idle downstream connections: those of the source that holds the
// most connections first, and of them those that are idle longest. Links and streams are not
// among them, nor connections with input that a late loop has not read. Any goroutine may call it.
func (p *Process) ShedIdle() {
	for _, w := range p.workers {
		w.shard.Loop.Post(w.shedIdle)
	}
}

// minIdle is how long a connection that is shed was idle at least: on one in use the next request
// may be on its way. idleParts is the part of a loop's connections that is shed at a time.
const (
	minIdle   = time.Second
	idleParts = 20
)

// idleSession is a session that may be shed.
type idleSession struct {
	source  netip.Addr
	idle    time.Duration
	rank    int // connections of the source if all that are idle longer were closed
	session interface {
		HasInput() bool
		CloseIdle()
	}
}

func (w *Worker) shedIdle() {
	held := make(map[netip.Addr]int)
	var all []idleSession
	for _, s := range w.host.Sessions {
		source := loop.Source(loop.PeerAddr(s.RemoteAddr()))
		held[source]++
		if idle := s.IdleFor(); idle >= minIdle {
			all = append(all, idleSession{source: source, idle: idle, session: s})
		}
	}
	slices.SortFunc(all, func(a, b idleSession) int { return cmp.Compare(b.idle, a.idle) })
	for i := range all {
		all[i].rank = held[all[i].source]
		held[all[i].source]--
	}
	slices.SortStableFunc(all, func(a, b idleSession) int { return cmp.Compare(b.rank, a.rank) })
	left := 1 + len(w.host.Sessions)/idleParts
	for _, s := range all {
		if left == 0 {
			return
		}
		if s.session.HasInput() {
			continue
		}
		left--
		w.shard.Stats.ShedIdle++
		s.session.CloseIdle()
	}
}
