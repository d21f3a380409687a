package reactor

import (
	"slices"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// A loop that has little to do is dear: it waits and writes for each request, where a busy loop does so for several
// requests at once. So connections move, between two requests:
//
//   - from a loop to one that has more to do, if that one can do the work of both;
//   - from a loop that has too much to do to the one that has least.

const (
	// moveTurn is for how long one loop of a reactor may decide to move connections, in turn. The next
	// one sees what that has changed.
	moveTurn = 2 * useWindow

	// filled is the use up to which a loop takes the connections of another one.
	filled = 0.7

	// tooBusy is the use from which on a loop gives connections away, if another one has less use
	// by leastGain.
	tooBusy   = 0.85
	leastGain = 0.25

	// maxGathered is from how many connections on a loop takes no more, and how many move in a window: the
	// bounds of a loop, such as those of a link, are not reached much earlier than without moves.
	maxGathered = 1024
)

// moving decides which connections of a loop move to another one.
type moving struct {
	of     *eventLoop
	all    []*eventLoop // the loops of the reactor; nil before the start and when it stops
	window uint32       // number of the present window of useMeter

	to    *eventLoop    // where connections move; nil means that none do
	until time.Duration // when moving ends
	part  float64       // the part that moves, of the connections that have input
	debt  float64       // connections that should have moved, and have not
	left  int           // how many more may move

	uses []loopUse // scratch space of decide
}

// loopUse is what destination knows of a loop.
type loopUse struct {
	share       float64 // of the time
	connections int
}

// decide begins a window: it decides which connections move in it.
func (m *moving) decide(now time.Duration) {
	m.to = nil
	m.window++
	if len(m.all) < 2 || !kernel.Moves || int(now/moveTurn)%len(m.all) != m.of.index {
		return
	}
	m.uses = m.uses[:0]
	for _, l := range m.all {
		m.uses = append(m.uses, l.use.at(now, l.waiting.Load()))
	}
	if to, part := destination(m.uses, m.of.index); part > 0 {
		m.to, m.until, m.part, m.debt, m.left = m.all[to], now+useWindow, part, 0, maxGathered
	}
}

// stop ends all moves.
func (m *moving) stop() { m.all, m.to = nil, nil }

// destination returns to which loop a loop moves what part of its connections.
func destination(loops []loopUse, from int) (to int, part float64) {
	own := loops[from].share
	for i, l := range loops {
		if l.share < loops[to].share {
			to = i
		}
	}
	if gain := own - loops[to].share; own > tooBusy && gain > leastGain {
		return to, gain / 2 / own
	}
	to = from
	for i, l := range loops {
		more := l.share > own || l.share == own && i < from
		if more && own+l.share <= filled && l.connections < maxGathered && (to == from || l.share > loops[to].share) {
			to, part = i, 1
		}
	}
	return to, part
}

// move moves c, which has input, if it is of the part that moves and its receiver is ready. On the other
// loop the connection begins anew, and reads its input.
func (m *moving) move(c *conn) bool {
	l := m.of
	if l.now >= m.until {
		m.to = nil
		return false
	}
	if c.inputIn == m.window || c.listener == nil || !slices.Contains(c.listener.loops, m.to) {
		return false
	}
	if c.inputIn, m.debt = m.window, m.debt+m.part; m.debt < 1 || m.left == 0 {
		return false
	}
	s, movable := c.receiver.(loop.Movable)
	if !movable || c.state != connOpen || c.secure != nil || c.Buffered() > 0 {
		return false
	}
	past, ready := s.MoveOut()
	if !ready || l.poller.Remove(c.fd) != nil {
		return false
	}
	m.debt--
	m.left--
	l.stats.Moved++
	l.setWatcher(c.fd, nil)
	moved := &conn{
		descriptor: descriptor{loop: m.to, fd: c.fd, unix: c.unix}, listener: c.listener, countedOn: c.countedOn, remote: c.remote, peer: c.peer, redirected: c.redirected,
		state: connArriving, reservation: c.reservation, movedWith: past,
	}
	c.fd, c.reservation, c.countedOn = -1, reservation{}, nil
	c.end(nil)
	moved.loop.Post(moved.resume)
	return true
}

// resume begins the events of a connection that has moved. It reads at once: a drain may follow in this
// turn, and would close a connection without a request.
func (c *conn) resume() {
	if c.listener.begin(c); c.state == connOpen {
		c.onEvents(kernel.Input | kernel.All)
	}
}
