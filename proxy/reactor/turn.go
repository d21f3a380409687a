package reactor

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// A turn is one round of a loop: it waits for events, delivers them, fires due timers, runs posted
// functions, then the flushes, and then calls OnClose for closed connections. Work that arises
// later waits for the next turn, which then begins at once. A turn has at most kernel.MaxReady
// events: otherwise the output of the first would wait for the last. A flush for each 64 events
// costs next to nothing, lets the peers start sooner, and keeps the output in the processor's cache.

// timeSlice is how long a loop keeps its goroutine running, busy or not, before it yields.
// After 10 ms the runtime's monitor takes the P away at each system call that it sees, and
// then checks every 20 µs.
const timeSlice = 5 * time.Millisecond

// run is the goroutine of the loop. It ends in the turn in which halt's function runs.
func (l *eventLoop) run() {
	defer close(l.ended)
	l.turning.Lock() // for ever, once the loop has ended
	for !l.stopping {
		l.turn(l.wait())
	}
}

func (l *eventLoop) turn(events int) {
	began := l.clock()
	l.now = began
	if began-l.turned >= restAfter {
		l.roused = began
	}
	l.added = l.added[:0]
	for i := range events {
		fd, e := l.poller.Ready(i)
		if w := l.watcherOf(fd); w != nil && !slices.Contains(l.added, fd) {
			if i > 0 {
				l.now = l.clock()
			}
			l.deliver(w, e)
		}
	}
	l.fireTimers()
	l.runPosts()
	l.endTurn()
	l.turned = l.clock()
	l.stats.Turns.Observe(l.turned - began)
	l.stats.TurnEvents.Observe(events)
	if l.turned-l.moving.since >= useWindow {
		l.measureUse()
	}
	if events > 0 && l.eng.onWork.Load() != nil {
		if f := l.eng.onWork.Swap(nil); f != nil {
			l.do(*f)
		}
	}
}

func (l *eventLoop) deliver(w watcher, e kernel.Events) {
	defer l.recovered(nil)
	l.stats.Events++
	w.onEvents(e)
}

// clock returns the time since the engine's start. It is never 0.
func (l *eventLoop) clock() time.Duration { return time.Since(l.eng.began) + 1 }

// wait waits for the next event, timer or posted function, and returns the number of events.
func (l *eventLoop) wait() int {
	if l.now-l.slice.began > timeSlice {
		l.slice.yield(l.now)
		l.turned = l.clock()
	}
	limit := l.idleTime()
	if limit == 0 {
		return l.poller.Wait(0)
	}
	l.waiting.Store(true)
	if l.posts.some.Load() {
		limit = 0 // Post may have seen that the loop did not wait
	}
	return l.block(limit)
}

// block waits, at most for limit. Meanwhile Peek may read the loop.
func (l *eventLoop) block(limit time.Duration) (events int) {
	l.turning.Unlock()
	if l.turned-l.roused < restAgain {
		events = l.poller.Rest(limit)
	} else {
		events = l.poller.Wait(limit)
	}
	l.waiting.Store(false)
	l.turning.Lock()
	return events
}

// waits says how a loop waits.
type waits struct {
	waiting atomic.Bool   // Post must wake the poller
	turning sync.Mutex    // held by the loop while it does not wait, and by Peek
	roused  time.Duration // when the last rest ended; the loop's own
}

// restAfter is how long a wait is at least that is a rest. For restAgain after one, the loop expects
// each wait to be another. A busy loop would pay for that: others must find it a P after each wait.
const (
	restAfter = 25 * time.Millisecond
	restAgain = 10 * time.Millisecond
)

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

// slice is the current time slice of a loop.
type slice struct {
	began time.Duration
	count int // of slices that have ended
}

// yield ends the slice, and lets other goroutines run: those that are ready on this P, and each
// maxLocal-th time any. For that the runtime wakes a thread, which often takes the loop to another
// processor.
func (s *slice) yield(now time.Duration) {
	s.began = now
	if s.count++; s.count%maxLocal == 0 {
		runtime.Gosched()
	} else {
		goyield()
	}
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
	return max(0, at-l.turned)
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

// endTurn runs the flushes, then calls OnClose for closed connections. Work that these
// callbacks leave waits for the next turn.
func (l *eventLoop) endTurn() {
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
