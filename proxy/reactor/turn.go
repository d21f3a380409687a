package reactor

import (
	"context"
	"slices"
	"time"
)

// A turn ends with the flushes and then the close notices of the events before
// it. gnet has no hook for "all ready events are handed out", but a function
// given to Execute during an event runs after the events of the next poll. That
// costs a write to gnet's eventfd, a poll and two small allocations, which is
// little against the writes saved while several events share a turn, and too
// much while each turn has one event only. So the loop learns: each turn that
// one event had for itself doubles the number of following events that end
// their own turn at once, up to maxSolo; a turn that was shared ends that.
const maxSolo = 31

// maxSharers is how many events share a turn at most. gnet hands out up to 1,024 in a
// row, and what the first ones brought would wait for the last: a flush for each 64
// is as good as free, the peers begin sooner, and what is collected stays in the
// processor's cache.
const maxSharers = 64

// turns is the state of a loop's turn.
type turns struct {
	left   bool // this event left work for the end of the turn
	asked  bool // Execute was called for the end of this turn
	again  bool // the timerfd is to wake the loop for a further turn
	sharer int  // events that left work for the turn asked for
	solo   int  // events that will end their turn at once
	quiet  int  // the last value given to solo

	events int           // so far
	began  time.Duration // when the first of them came; 0: none has
}

// enter begins a round of callbacks for one event of gnet.
func (l *eventLoop) enter() {
	l.resume()
	l.stats.Events++
	l.turns.events++
}

// resume begins a round of callbacks.
func (l *eventLoop) resume() {
	l.busy = true
	l.now = l.clock.now()
	if l.turns.began == 0 {
		l.turns.began = l.now
	}
}

// leave ends what enter or resume began: it ends the turn or sees to it that one
// comes. An event that left no work was a turn of its own.
func (l *eventLoop) leave() {
	if l.turns.left {
		l.turns.left = false
		l.settle()
	}
	if l.turns.began != 0 && !l.turns.asked {
		l.measure()
	}
	l.rearm()
	l.busy = false
}

// settle arranges the end of the turn for work that an event left.
func (l *eventLoop) settle() {
	t := &l.turns
	switch {
	case t.again:
	case t.asked:
		if t.sharer++; t.sharer%maxSharers == 0 {
			l.endTurn()
		}
	case t.solo > 0:
		t.solo--
		l.endTurn()
	default:
		t.asked, t.sharer = true, 1
		l.wake()
	}
}

// learn sets the number of solo events from how the last turn was shared.
func (t *turns) learn() {
	if t.sharer > 1 {
		t.quiet = 0
	} else if t.sharer == 1 {
		t.quiet = min(2*t.quiet+1, maxSolo)
	}
	t.solo, t.sharer, t.asked = t.quiet, 0, false
}

// endTurn runs the flushes, then tells the streams of closed connections. What
// these leave behind waits for a further turn.
func (l *eventLoop) endTurn() {
	for _, f := range l.flushes.Take() {
		l.run(f.Do)
	}
	closed := l.notices
	l.notices, l.spare = l.spare[:0], closed
	for i, c := range closed {
		closed[i] = nil
		c.tell()
	}
	l.turns.left = false
	l.turns.again = !l.flushes.Empty() || len(l.notices) > 0
	l.measure()
}

// measure counts the turn that has ended.
func (l *eventLoop) measure() {
	t := &l.turns
	l.stats.Turns.Observe(l.clock.now() - t.began)
	l.stats.TurnEvents.Observe(t.events)
	t.began, t.events = 0, 0
}

// turn is what Execute runs.
func (l *eventLoop) turn() {
	l.resume()
	if l.turns.asked {
		l.turns.learn()
	}
	l.endTurnWithPosts()
	l.leave()
}

// endTurnWithPosts runs what was posted and ends the turn. gnet runs the
// functions of Execute until none is left, so one that leads to another would
// starve the sockets: here nothing is asked of Execute, and what is left goes
// through the timerfd, in line with the other events.
func (l *eventLoop) endTurnWithPosts() {
	for _, f := range l.takePosts() {
		l.run(f)
	}
	l.endTurn()
	if l.donePosts() {
		l.turns.again = true
	}
}

// Post implements loop.Loop. However many functions wait, gnet's own queue
// holds one: past 1,024 entries it loses their order.
func (l *eventLoop) Post(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.retired {
		return
	}
	l.posts = append(l.posts, f)
	l.ask()
}

// wake asks for a turn.
func (l *eventLoop) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ask()
}

// ask calls Execute unless a turn is coming or running. mu is held, so that no
// call is under way once the loop is retired: gnet would write to an eventfd
// that is closed, or somebody else's by then.
func (l *eventLoop) ask() {
	if l.asked || l.retired {
		return
	}
	l.asked = true
	l.errandBegins()
	if err := l.el.Execute(context.Background(), l); err != nil {
		l.eng.log.Error("event loop does not take work", "loop", l.index, "error", err)
	}
}

// retire makes Post a no-op.
func (l *eventLoop) retire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retired, l.posts = true, nil
	l.errandBegins() // gnet's own, to end the loop
}

// takePosts empties the queue of posted functions. Until donePosts, further
// ones only queue up.
func (l *eventLoop) takePosts() []func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.posts
	l.posts, l.posted = l.posted[:0], taken
	return taken
}

// donePosts tells whether further functions were posted since takePosts; then
// the caller brings about the next turn.
func (l *eventLoop) donePosts() (more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.posted)
	if cap(l.posted) > 4096 {
		l.posted = slices.Clip(l.posted[:0])
	}
	l.asked = len(l.posts) > 0
	return l.asked
}
