package proxy

import (
	"maps"
	"slices"

	"github.com/remora-proxy/remora/proxy/exchange"
)

// shedAll gets the process below the hard mark: what one peer piles up is not to
// be paid by all. It runs when the loop has grown past the mark, at the end of
// the turn, since it ends exchanges. What is held elsewhere is the other loops' to
// close.
func (w *Worker) shedAll() {
	w.shed()
	if !w.shard.OverBudget() {
		return
	}
	for _, other := range w.proc.workers {
		if other != w {
			other.shard.Loop.Post(other.shed)
		}
	}
}

// shed takes from the connections of this loop that hold the most, until the
// process is below the hard mark or none holds much: a greedy request, or the
// connection with all that it carries where there is no such thing. With so many
// connections that a little each is too much, that is an equal part of the mark.
func (w *Worker) shed() {
	for w.shard.OverBudget() {
		weight, h := w.largestHolder()
		if weight < min(exchange.LeastShed, w.shard.ShareOfAll()) {
			return
		}
		if h.ShedLargest() {
			continue
		}
		w.shard.Stats.Shed++
		w.shard.Log.Warn("connection closed: it holds the most, far past limits.buffered", "bytes", weight)
		h.CloseNow()
	}
}

// largestHolder finds the downstream connection that holds the most, or a link to an
// endpoint that does so for each of its requests: who asked for them is to pay
// before all who share the link.
func (w *Worker) largestHolder() (weight int, h exchange.Holder) {
	rank := 0
	for s := range w.host.Sessions.All {
		if n := s.Buffered(); n > rank {
			rank, weight, h = n, n, s
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.services)) {
		if held, each, up := w.services[name].Largest(rank); each > rank {
			rank, weight, h = each, held, up
		}
	}
	return weight, h
}
