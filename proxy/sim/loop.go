package sim

import (
	"strings"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// Loop is one simulated event loop. It implements loop.Loop; its other methods
// are for the test and are called outside of callbacks.
type Loop struct {
	w    *World
	name string
	id   int
	host *host
	dead bool

	timers  loop.Timers
	flushes loop.Flushes
	posts   []func()
	due     []*conn // with an event for the next turn
	closed  []*conn // with OnClose due
	conns   []*conn // all before OnClose

	dueSpare   []*conn
	postsSpare []func()
	busyUntil  time.Duration // no turn before this time
	wakeAt     time.Duration // of the wake event that counts
	waking     bool
}

// Loop returns the loop called name. It makes the loop on first use, and again after a
// Crash. The name up to the first "/" is the host: "api" and "api/1" share one.
func (w *World) Loop(name string) *Loop {
	for _, l := range w.loops {
		if l.name == name && !l.dead {
			return l
		}
	}
	hostName, _, _ := strings.Cut(name, "/")
	l := &Loop{w: w, name: name, id: len(w.loops), host: w.Net.host(hostName)}
	l.host.revive()
	l.busyUntil = w.clock.now
	w.loops = append(w.loops, l)
	return l
}

// Name returns the name of the loop.
func (l *Loop) Name() string { return l.name }

// Do posts f and runs the world until f has run. It panics if that takes more than an hour
// of virtual time.
func (l *Loop) Do(f func()) {
	done := false
	l.Post(func() { f(); done = true })
	if !l.w.RunUntil(func() bool { return done }, time.Hour) {
		panic("sim: loop " + l.name + " does not run")
	}
}

// Now implements loop.Loop.
func (l *Loop) Now() time.Duration {
	l.check("Loop.Now")
	return l.w.clock.now
}

// After implements loop.Loop.
func (l *Loop) After(d time.Duration, t *loop.Timer) {
	l.check("Loop.After")
	l.timers.Arm(t, l.w.clock.now+max(d, 0))
}

// Stop implements loop.Loop.
func (l *Loop) Stop(t *loop.Timer) {
	l.check("Loop.Stop")
	l.timers.Disarm(t)
}

// Defer implements loop.Loop.
func (l *Loop) Defer(f *loop.Flush) {
	l.check("Loop.Defer")
	l.flushes.Add(f)
}

// Dial implements loop.Loop. A timeout of 0 or less means no timeout.
func (l *Loop) Dial(addr string, timeout time.Duration, r loop.Receiver) {
	l.check("Loop.Dial")
	l.w.Net.dial(l, addr, timeout, r)
}

// Post implements loop.Loop. Anything in the world's goroutine may call it. Functions
// posted for one turn run in random order.
func (l *Loop) Post(f func()) {
	if l.dead {
		return
	}
	l.posts = append(l.posts, f)
	l.need(l.w.clock.now)
}

// check panics unless a callback of l is running.
func (l *Loop) check(method string) {
	if l.w.current != l {
		panic("sim: " + method + " called outside of the callbacks of loop " + l.name)
	}
}

// enter and leave bracket every call into the core.
func (l *Loop) enter() {
	if l.w.current != nil {
		panic("sim: callback of loop " + l.name + " inside one of loop " + l.w.current.name)
	}
	l.w.current = l
	l.w.callbacks++
}

func (l *Loop) leave() { l.w.current = nil }

// need schedules a turn at the time at, or as soon as the loop is free.
func (l *Loop) need(at time.Duration) {
	at = max(at, l.busyUntil, l.w.clock.now)
	if l.dead || l.waking && l.wakeAt <= at {
		return
	}
	l.waking, l.wakeAt = true, at
	l.w.clock.push(event{at: at, kind: evWake, l: l})
}

// wake runs a turn for a wake event, unless an earlier one has replaced the event.
func (l *Loop) wake(at time.Duration) {
	if l.dead || !l.waking || at != l.wakeAt {
		return
	}
	l.waking = false
	if l.busyUntil <= l.w.clock.now && l.hasWork() {
		l.turn()
		l.busyUntil = max(l.busyUntil, l.w.clock.now+max(l.w.Options.TurnCost, 1))
	}
	if l.dead {
		return
	}
	if next, ok := l.timers.Next(); ok {
		l.need(next)
	}
	if len(l.due)+len(l.posts)+len(l.closed) > 0 || !l.flushes.Empty() {
		l.need(l.w.clock.now)
	}
}

func (l *Loop) hasWork() bool {
	next, armed := l.timers.Next()
	return len(l.due)+len(l.posts)+len(l.closed) > 0 || !l.flushes.Empty() ||
		armed && next <= l.w.clock.now
}

// turn runs one turn: events and timers, flushes, OnClose.
func (l *Loop) turn() {
	w := l.w
	before, ready := w.callbacks, len(l.due)+len(l.posts)
	mark := l.timers.LastSeq()
	due, posts := l.due, l.posts
	l.due, l.posts = l.dueSpare[:0], l.postsSpare[:0]
	w.rand.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
	w.rand.Shuffle(len(posts), func(i, j int) { posts[i], posts[j] = posts[j], posts[i] })

	// Connections, timers and posts alternate at random; timers keep their order.
	rest := posts
	for _, c := range due {
		if w.rand.IntN(2) == 0 && l.fire(mark) {
			ready++
		}
		if len(rest) > 0 && w.rand.IntN(2) == 0 {
			l.post(rest[0])
			rest = rest[1:]
		}
		c.queued = false
		c.service()
	}
	for _, f := range rest {
		l.post(f)
	}
	for l.fire(mark) {
		ready++
	}
	clear(due)
	clear(posts)
	l.dueSpare, l.postsSpare = due[:0], posts[:0]

	for _, f := range l.flushes.Take() {
		w.trace.note(evkFlush, l, nil, 0)
		l.enter()
		f.Do()
		l.leave()
	}
	// OnClose may close another connection, whose OnClose is then called last.
	for i := 0; i < len(l.closed); i++ {
		l.closed[i].notify()
	}
	clear(l.closed)
	l.closed = l.closed[:0]
	if w.onTurn != nil {
		w.onTurn(l, ready, int(w.callbacks-before))
	}
}

func (l *Loop) post(f func()) {
	l.w.trace.note(evkPost, l, nil, 0)
	l.enter()
	f()
	l.leave()
}

// fire runs the next timer that was due when the turn began. It reports whether there was
// one.
func (l *Loop) fire(mark uint64) bool {
	t := l.timers.Pop(l.w.clock.now, mark)
	if t == nil {
		return false
	}
	l.w.trace.note(evkTimer, l, nil, 0)
	l.enter()
	t.Fire()
	l.leave()
	return true
}

func (l *Loop) remove(c *conn) {
	last := len(l.conns) - 1
	l.conns[c.index] = l.conns[last]
	l.conns[c.index].index = c.index
	l.conns[last] = nil
	l.conns = l.conns[:last]
}
