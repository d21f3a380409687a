package reactor

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// A turn is one round of a loop: its poller delivers events; then the loop fires due timers, runs posted
// functions, then the flushes, and then calls OnClose for closed connections. Work that arises
// later waits for the next turn, which then begins at once. A turn has at most kernel.MaxReady
// events: otherwise the output of the first would wait for the last. A flush for each 64 events
// costs next to nothing, lets the peers start sooner, and keeps the output in the processor's cache.

// turn is the turn in progress, or the last one.
type turn struct {
	began, ended time.Duration
	events       int
	rested       time.Duration // when the last rest ended
}

// begin begins a turn. A long wait before it was a rest.
func (t *turn) begin(now time.Duration) {
	if now-t.ended >= restAfter {
		t.rested = now
	}
	t.began, t.events = now, 0
}

// restsAgain reports whether the wait after the turn will probably be a rest.
func (t *turn) restsAgain() bool { return t.ended-t.rested < restAgain }

// restAfter is how long a wait is at least that is a rest. For restAgain after one, the loop expects
// each wait to be another. A busy loop would pay for that: others must find it a P after each wait.
const (
	restAfter = 25 * time.Millisecond
	restAgain = 10 * time.Millisecond
)

// timeSlice is how long a loop keeps its goroutine running, busy or not, before it yields.
// After 10 ms the runtime's monitor takes the P away at each system call that it sees, and
// then checks every 20 µs.
const timeSlice = 5 * time.Millisecond

// run is the goroutine of the loop. It ends in the turn in which halt's function runs.
func (l *eventLoop) run() {
	defer close(l.ended)
	l.poller.Run(l)
}

// BeginTurn implements kernel.Turns.
func (l *eventLoop) BeginTurn() {
	l.waiting.Store(false)
	l.turning.Lock()
	l.now = l.clock()
	l.turn.begin(l.now)
}

// OnEvents implements kernel.Turns.
func (l *eventLoop) OnEvents(fd int, e kernel.Events) {
	if l.turn.events++; l.turn.events > 1 {
		l.now = l.clock()
	}
	if fd < len(l.watchers) && l.watchers[fd] != nil {
		l.deliver(l.watchers[fd], e)
	}
}

// EndTurn implements kernel.Turns.
func (l *eventLoop) EndTurn() kernel.Wait {
	l.fireTimers()
	l.runPosts()
	l.runFlushes()
	l.measure()
	if l.stopping {
		return kernel.Wait{Stop: true} // turning stays locked for ever
	}
	if l.quantum.yield(l.turn.ended) {
		l.turn.ended = l.clock()
	}
	w := kernel.Wait{Limit: l.idleTime(), Now: l.turn.ended, Rest: l.turn.restsAgain()}
	if w.Limit != 0 {
		l.waiting.Store(true)
		if l.posts.some.Load() {
			w.Limit = 0 // Post may have seen that the loop did not wait
		}
	}
	l.turning.Unlock()
	return w
}

// measure counts the turn.
func (l *eventLoop) measure() {
	t := &l.turn
	t.ended = l.clock()
	l.stats.Turns.Observe(t.ended - t.began)
	l.stats.TurnEvents.Observe(t.events)
	if l.use.isDue(t.ended) {
		l.use.measure(t.ended, l.stats.Turns.Sum, len(l.conns))
		l.moving.decide(t.ended)
	}
	if t.events > 0 && l.reactor.onWork.Load() != nil {
		if f := l.reactor.onWork.Swap(nil); f != nil {
			l.do(*f)
		}
	}
}

func (l *eventLoop) deliver(w watcher, e kernel.Events) {
	defer l.recovered(nil)
	l.stats.Events++
	w.onEvents(e)
}

// clock returns the time since the reactor's start. It is never 0.
func (l *eventLoop) clock() time.Duration { return time.Since(l.reactor.began) + 1 }

// Peek implements loop.Peeker.
func (l *eventLoop) Peek(f func()) bool {
	if !l.turning.TryLock() {
		return false
	}
	defer l.turning.Unlock()
	l.now = l.clock()
	ran := false
	l.do(func() { f(); ran = true })
	return ran
}

// quantum is the current time slice of a loop.
type quantum struct {
	began time.Duration
	count int // of slices that have ended
}

// yield ends the time slice if its time is over, and reports whether it is. Other goroutines run then: those that are
// ready on this P, and each maxLocal-th time any. For that the runtime wakes a thread, which often takes the loop
// to another processor.
func (q *quantum) yield(now time.Duration) bool {
	if now-q.began <= timeSlice {
		return false
	}
	q.began = now
	if q.count++; q.count%maxLocal == 0 {
		runtime.Gosched()
	} else {
		goyield()
	}
	return true
}

// maxLocal bounds how long a goroutine waits that is ready on no P, if GOMAXPROCS leaves no P besides
// those of busy loops.
const maxLocal = 8

// goyield is Gosched, but the goroutine stays on its P, and no thread is woken. The runtime keeps it for
// packages outside (golang.org/issue/67401).
//
//go:linkname goyield runtime.goyield
func goyield()

// idleTime returns how long the loop may wait for events: negative means without a limit.
func (l *eventLoop) idleTime() time.Duration {
	if !l.flushes.Empty() || len(l.closed) > 0 {
		return 0
	}
	at, ok := l.timers.Next()
	if !ok {
		return -1
	}
	return max(0, at-l.turn.ended)
}

// fireTimers fires the timers that are due. One that they arm, even with delay 0, waits for the
// next turn.
func (l *eventLoop) fireTimers() {
	limit := l.timers.LastSeq()
	for t := l.timers.Pop(l.now, limit); t != nil; t = l.timers.Pop(l.now, limit) {
		l.do(t.Fire)
	}
}

func (l *eventLoop) runPosts() {
	posts := l.posts.take()
	if len(posts) > 0 {
		l.now = l.clock()
	}
	for i, f := range posts {
		posts[i] = nil
		l.do(f)
	}
}

// runFlushes runs the flushes, then calls OnClose for closed connections. Work that these
// callbacks leave waits for the next turn.
func (l *eventLoop) runFlushes() {
	if l.flushes.Empty() && len(l.closed) == 0 {
		return
	}
	l.now = l.clock()
	for _, f := range l.flushes.Take() {
		l.do(f.Do)
	}
	closed := l.closed
	l.closed, l.spare = l.spare[:0], closed
	for i, c := range closed {
		closed[i] = nil
		c.callOnClose()
	}
}

// posts is the queue of posted functions.
type posts struct {
	some    atomic.Bool // queue is not empty
	mu      sync.Mutex
	queue   []func()
	taken   []func() // the other half of its double buffer
	retired bool     // the loop has ended
}

// maxKeptPosts limits the memory that the queue of posted functions keeps.
const maxKeptPosts = 4096

// Post implements loop.Loop.
func (l *eventLoop) Post(f func()) {
	p := &l.posts
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.retired {
		return
	}
	p.queue = append(p.queue, f)
	p.some.Store(true)
	if l.waiting.Swap(false) {
		l.poller.Wake() // under mu, so that the poller is not closed
	}
}

func (p *posts) retire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retired, p.queue = true, nil
}

// take empties the queue. The caller must clear the result, which is valid until the next call.
func (p *posts) take() []func() {
	if !p.some.Load() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if cap(p.taken) > maxKeptPosts {
		p.taken = nil
	}
	p.queue, p.taken = p.taken[:0], p.queue
	p.some.Store(false)
	return p.taken
}
