package reactor

import (
	"context"
	"slices"
	"time"
)

// A turn is one or more events. At its end the flushes run, and then OnClose is called for
// closed connections. gnet has no hook after the last ready event, but a function given to
// Execute during an event runs after the events of the next poll. That costs a write to gnet's
// eventfd, a poll and two small allocations. It pays if several events share the turn, since
// it saves writes, but not if each turn has a single event. So the loop learns: each turn with
// a single event doubles the number of following events that end their turn at once, up to
// maxSolo. A shared turn resets that number to 0.
const maxSolo = 31

// maxSharers limits the events that share a turn. gnet delivers up to 1,024 events in a row,
// and the output of the first would wait for the last. A flush for each 64 events costs next
// to nothing, lets the peers start sooner, and keeps the output in the processor's cache.
const maxSharers = 64

// turns is the state of a loop's turn. A function given to Execute and the timerfd may both be
// pending to end it: when maxSharers ends a turn early, it may leave work behind.
type turns struct {
	workLeft  bool // this event has left work for the end of the turn
	byExecute bool // Execute was called, and will end this turn
	byTimer   bool // work is left behind for a further turn, which the timerfd must start
	sharers   int  // events that left work for the turn that Execute ends
	solo      int  // following events that end their turn at once
	lastSolo  int  // the value that solo was last set to

	events int           // so far
	began  time.Duration // time of the first of them; 0 means that there is none
}

func (l *eventLoop) beginEvent() {
	l.beginCallbacks()
	l.stats.Events++
	l.turns.events++
}

// beginCallbacks starts a round of callbacks, which endEvent ends.
func (l *eventLoop) beginCallbacks() {
	l.busy = true
	l.now = l.clock.now()
	if l.turns.began == 0 {
		l.turns.began = l.now
	}
}

// endEvent ends a round of callbacks. If they left work, it ends the turn or schedules its
// end. An event that left no work is a turn of its own.
func (l *eventLoop) endEvent() {
	if l.turns.workLeft {
		l.turns.workLeft = false
		l.scheduleTurn()
	}
	if l.turns.began != 0 && !l.turns.byExecute {
		l.measure()
	}
	l.rearm()
	l.busy = false
}

func (l *eventLoop) scheduleTurn() {
	t := &l.turns
	switch {
	case t.byTimer:
	case t.byExecute:
		if t.sharers++; t.sharers%maxSharers == 0 {
			l.endTurn()
		}
	case t.solo > 0:
		t.solo--
		l.endTurn()
	default:
		t.byExecute, t.sharers = true, 1
		l.mu.Lock()
		l.askTurn()
		l.mu.Unlock()
	}
}

func (t *turns) learn() {
	if t.sharers > 1 {
		t.lastSolo = 0
	} else if t.sharers == 1 {
		t.lastSolo = min(2*t.lastSolo+1, maxSolo)
	}
	t.solo, t.sharers, t.byExecute = t.lastSolo, 0, false
}

// endTurn runs the flushes, then calls OnClose for closed connections. Work that these
// callbacks leave waits for a further turn.
func (l *eventLoop) endTurn() {
	for _, f := range l.flushes.Take() {
		l.run(f.Do)
	}
	closed := l.closed
	l.closed, l.spare = l.spare[:0], closed
	for i, c := range closed {
		closed[i] = nil
		c.callOnClose()
	}
	l.turns.workLeft = false
	l.turns.byTimer = !l.flushes.Empty() || len(l.closed) > 0
	l.measure()
}

func (l *eventLoop) measure() {
	t := &l.turns
	l.stats.Turns.Observe(l.clock.now() - t.began)
	l.stats.TurnEvents.Observe(t.events)
	t.began, t.events = 0, 0
}

// Run implements gnet.Runnable. It runs the turn that was given to Execute.
func (l *eventLoop) Run(context.Context) error {
	l.beginCallbacks()
	if l.turns.byExecute {
		l.turns.learn()
	}
	l.endTurnWithPosts()
	l.endEvent()
	l.taskEnds()
	return nil
}

// endTurnWithPosts runs the posted functions and ends the turn. gnet runs the functions given
// to Execute until none is left, so a function that calls Execute again would starve the
// sockets. So remaining work waits for the timerfd, which is an event among the others.
func (l *eventLoop) endTurnWithPosts() {
	for _, f := range l.takePosts() {
		l.run(f)
	}
	l.endTurn()
	if l.postsDone() {
		l.turns.byTimer = true
	}
}

// Post implements loop.Loop. gnet's own queue has one entry for all posted functions, because
// it loses the order beyond 1,024 entries.
func (l *eventLoop) Post(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.retired {
		return
	}
	l.posts = append(l.posts, f)
	l.askTurn()
}

// askTurn calls Execute unless a turn is pending or running. The caller holds mu, so that no
// call is in progress once the loop is retired: gnet would write to an eventfd that is closed
// or reused.
func (l *eventLoop) askTurn() {
	if l.turnPending || l.retired {
		return
	}
	l.turnPending = true
	l.taskBegins()
	if err := l.el.Execute(context.Background(), l); err != nil {
		l.eng.log.Error("event loop has stopped flushing: gnet refused a function", "loop", l.index, "error", err)
	}
}

// retire makes Post a no-op.
func (l *eventLoop) retire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retired, l.posts = true, nil
	l.taskBegins() // gnet's own function that ends the loop
}

// takePosts empties the queue of posted functions. Until postsDone, Post only queues.
func (l *eventLoop) takePosts() []func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.posts
	l.posts, l.posted = l.posted[:0], taken
	return taken
}

// postsDone reports whether functions were posted since takePosts, so that the caller must
// start the next turn.
func (l *eventLoop) postsDone() (more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.posted)
	if cap(l.posted) > 4096 {
		l.posted = slices.Clip(l.posted[:0])
	}
	l.turnPending = len(l.posts) > 0
	return l.turnPending
}
