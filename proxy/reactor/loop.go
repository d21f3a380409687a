package reactor

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// eventLoop waits for events, and runs what is due turn by turn: the handlers of events, timers, posted functions and
// flushes. Only its own goroutine may access it, except for posts and the atomics.
type eventLoop struct {
	reactor *Reactor
	index   int
	poller  kernel.Poller

	now     time.Duration
	turn    turn
	quantum quantum

	timers   loop.Timers
	flushes  loop.Flushes
	closed   []*conn   // closed connections whose OnClose was not called yet
	spare    []*conn   // the other half of the double buffer of closed
	conns    connList  // open or being dialled
	watchers []watcher // by descriptor

	newcomers newcomers

	stats stats.LoopStats

	scratch
	blocks freeBlocks // for output that the kernel does not take
	use    useMeter
	moving moving

	// load is the number of connections that came to this loop first, or are on their way to it.
	load atomic.Int64

	stopping bool
	ended    chan struct{} // closed when the goroutine has ended

	waiting atomic.Bool // the loop waits for events: Post must wake the poller
	turning sync.Mutex  // held by the loop during a turn, and by Peek
	posts   posts
}

// scratch is memory that a loop uses within an event.
type scratch struct {
	input                []byte // what was read
	decrypted, encrypted []byte // output of TLS, nil before its first use
	joined               []byte // plain text before its encryption, nil before its first use
}

// plain returns the buffer into which connections decrypt, one at a time.
func (s *scratch) plain() []byte {
	if s.decrypted == nil {
		s.decrypted = make([]byte, maxRecord)
	}
	return s.decrypted
}

// A read takes at most inputSize bytes, or maxRoom bytes to memory of the receiver. maxReads limits the reads of one event.
const (
	inputSize = 64 << 10
	maxReads  = 4
	maxRoom   = maxReads * inputSize
)

func startLoop(r *Reactor, index int) (*eventLoop, error) {
	poller, err := r.kind.Open()
	if err != nil {
		return nil, err
	}
	l := &eventLoop{reactor: r, index: index, poller: poller, scratch: scratch{input: make([]byte, inputSize)}, newcomers: make(newcomers), ended: make(chan struct{})}
	l.moving.of = l
	l.now = l.clock()
	go l.run()
	return l, nil
}

// halt ends the loop's goroutine. Nothing may be on the loop any more.
func (l *eventLoop) halt() error {
	l.Post(func() { l.stopping = true })
	<-l.ended
	l.posts.retire()
	return l.poller.Close()
}

// setWatcher makes w receive the events of fd; nil ends that. The first events may be of the former owner of the
// number: w must not rely on them.
func (l *eventLoop) setWatcher(fd int, w watcher) {
	if fd >= len(l.watchers) {
		l.watchers = append(l.watchers, make([]watcher, fd+1-len(l.watchers))...)
	}
	l.watchers[fd] = w
}

var _ stats.Metered = (*eventLoop)(nil)

// Stats implements stats.Metered.
func (l *eventLoop) Stats() stats.LoopStats {
	s := l.stats
	s.Connections = len(l.conns)
	return s
}

// Now implements loop.Loop.
func (l *eventLoop) Now() time.Duration { return l.now }

// After implements loop.Loop.
func (l *eventLoop) After(d time.Duration, t *loop.Timer) {
	l.timers.Arm(t, l.now+min(max(d, 0), maxDelay))
}

// maxDelay, 73 years, does not overflow when the clock's time is added.
const maxDelay = time.Duration(1 << 61)

// Stop implements loop.Loop.
func (l *eventLoop) Stop(t *loop.Timer) { l.timers.Disarm(t) }

// Defer implements loop.Loop.
func (l *eventLoop) Defer(f *loop.Flush) { l.flushes.Add(f) }

// connList has connections in no order. Each knows its place.
type connList []*conn

func (l *connList) add(c *conn) {
	c.slot = len(*l)
	*l = append(*l, c)
}

func (l *connList) remove(c *conn) {
	all := *l
	last := len(all) - 1
	moved := all[last]
	all[c.slot], moved.slot = moved, c.slot
	all[last] = nil
	*l = all[:last]
}

// end ends the connections, each of which removes itself.
func (l *connList) end() {
	for len(*l) > 0 {
		(*l)[len(*l)-1].end(nil)
	}
}

// do calls f, and recovers from its panic.
func (l *eventLoop) do(f func()) {
	defer l.recovered(nil)
	f()
}

// recovered is deferred around every callback, and recovers from its panic. It closes c, the
// connection of the callback, unless c is nil.
func (l *eventLoop) recovered(c *conn) {
	r := recover()
	if r == nil {
		return
	}
	l.reactor.panics.Add(r, "panic in a callback of the event loop", "loop", l.index)
	if c != nil && c.state != connClosed {
		c.end(ErrPanic)
	}
}
