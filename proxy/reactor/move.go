package reactor

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// A loop that has little to do is dear: it waits and writes for each request, where a busy one does so
// for several at once. So no more loops carry requests than the load needs. Connections move, between
// two requests, from the other loops to these, and from a loop that has too much to do to the
// least busy one.

const (
	// useWindow is over how much time a loop measures its use, the share of a processor that it takes.
	useWindow = 100 * time.Millisecond

	// filled is the use to which loops are filled before one more is needed.
	filled = 0.7

	// tooBusy is the use from which on a loop gives connections away, if another one has less use
	// by leastGain.
	tooBusy   = 0.9
	leastGain = 0.25

	// maxGathered bounds the connections of a loop to which others move because it has time. So the
	// bounds of a loop, such as those of a link, are not reached earlier than without that.
	maxGathered = 1024

	// staleUse is after how much time without a turn a loop counts as unused.
	staleUse = 3 * useWindow
)

// use measures what share of a processor a loop takes.
type use struct {
	since  time.Duration // when the window began
	thread int           // which the loop had then; 0 means none
	taken  time.Duration // processor time of the thread until then

	share atomic.Uint64 // of the last window, as bits of a float64
	at    atomic.Int64  // when that ended
}

// end ends the window, and reports whether its share is known: it is not if the loop has changed threads.
func (u *use) end(now time.Duration) bool {
	thread, taken := kernel.ThreadTime()
	known := thread != 0 && thread == u.thread
	if known {
		u.share.Store(math.Float64bits(float64(taken-u.taken) / float64(now-u.since)))
		u.at.Store(int64(now))
	}
	u.since, u.thread, u.taken = now, thread, taken
	return known
}

// of returns the last share, at a time.
func (u *use) of(now time.Duration) float64 {
	if now-time.Duration(u.at.Load()) > staleUse {
		return 0
	}
	return math.Float64frombits(u.share.Load())
}

// moving says which connections of a loop move.
type moving struct {
	use  use
	uses []loopUse    // scratch space of measureUse
	left int          // how many more connections move in this window
	to   *eventLoop   // where they move
	all  []*eventLoop // the loops that share connections; nil before the engine has started and when it stops
}

// measureUse ends a window of the loop's use, and decides how many connections move in the next one.
func (l *eventLoop) measureUse() {
	m := &l.moving
	m.left = 0
	if len(m.all) < 2 {
		m.use.since = l.turned
		return
	}
	if !m.use.end(l.turned) {
		return
	}
	m.uses = m.uses[:0]
	for _, other := range m.all {
		m.uses = append(m.uses, loopUse{other.moving.use.of(l.turned), int(other.load.Load())})
	}
	to, n := destination(m.uses, l.index)
	m.to, m.left = m.all[to], n
}

// loopUse is what destination knows of a loop.
type loopUse struct {
	share       float64 // of a processor
	connections int     // accepted ones
}

// destination returns to which loop a loop moves how many connections.
func destination(loops []loopUse, from int) (to, connections int) {
	total := 0.0
	for _, l := range loops {
		total += l.share
	}
	needed := min(max(1, int(math.Ceil(total/filled))), len(loops))
	for i, l := range loops[:needed] {
		if l.share < loops[to].share {
			to = i
		}
	}
	own := loops[from]
	gain := own.share - loops[to].share
	switch {
	case from >= needed:
		return to, min(own.connections, max(0, maxGathered-loops[to].connections))
	case own.share > tooBusy && gain > leastGain:
		return to, int(float64(own.connections) * gain / 2 / own.share)
	}
	return from, 0
}

// move moves c, which has input, to the loop for which that is decided, if its stream is ready for
// that. There the connection begins anew, and reads its input.
func (c *conn) move() bool {
	s, movable := c.stream.(loop.Movable)
	l := c.loop
	if !movable || c.by == nil || c.state != connOpen || c.secure != nil || c.Buffered() > 0 ||
		!slices.Contains(c.by.loops, l.moving.to) || !s.MayMove() || l.poller.Remove(c.fd) != nil {
		return false
	}
	l.moving.left--
	l.stats.Moved++
	l.setWatcher(c.fd, nil)
	moved := &conn{
		descriptor: descriptor{loop: l.moving.to, fd: c.fd},
		by:         c.by, remote: c.remote, peer: c.peer, redirected: c.redirected, state: connArriving, reservation: c.reservation,
	}
	c.fd, c.reservation = -1, reservation{}
	moved.loop.load.Add(1)
	c.end(nil)
	moved.loop.Post(func() { moved.by.begin(moved) })
	return true
}
