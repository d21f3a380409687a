package reactor

import (
	"context"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// eventLoop is one event loop: a thread's worth of connections, timers and deferred
// work. All but what mu guards and the atomics belongs to gnet's goroutine of
// that loop.
type eventLoop struct {
	eng   *Engine
	el    gnet.EventLoop // set at boot, by the arrival of the loop's timer
	index int

	now  time.Duration
	busy bool // within enter and leave

	clock   clock
	timers  loop.Timers
	flushes loop.Flushes
	notices []*conn // closed, their streams not told yet
	spare   []*conn // the other half of notices' double buffer
	conns   []*conn // open or being dialled, in no order

	turns turns // turn.go
	rest  rest  // rest.go
	stats stats.LoopStats

	// opened and sealed are where TLS decrypts to and encrypts to, in one
	// event each; nil while no connection uses TLS.
	opened, sealed []byte

	// load is the number of connections placed here, for the spreading of
	// accepted ones.
	load atomic.Int64

	mu      sync.Mutex
	posts   []func()
	posted  []func() // the other half of posts' double buffer
	asked   bool     // a turn is coming that takes posts
	retired bool     // gnet's loop must not be called any more
}

var _ stats.Metered = (*eventLoop)(nil)

func newLoop(e *Engine, index int, begin epoch) *eventLoop {
	return &eventLoop{eng: e, index: index, clock: clock{epoch: begin}}
}

// Stats implements stats.Metered.
func (l *eventLoop) Stats() stats.LoopStats {
	l.stats.Connections = len(l.conns)
	return l.stats
}

// Now implements loop.Loop.
func (l *eventLoop) Now() time.Duration { return l.now }

// After implements loop.Loop. The timerfd is set when the callbacks of this
// event are through, so a timer that is stopped before costs no system call.
func (l *eventLoop) After(d time.Duration, t *loop.Timer) {
	l.timers.Arm(t, l.now+min(max(d, 0), never))
}

// never is a time that does not overflow when the clock's is added, 73 years.
const never = time.Duration(1 << 61)

// Stop implements loop.Loop.
func (l *eventLoop) Stop(t *loop.Timer) { l.timers.Disarm(t) }

// Defer implements loop.Loop.
func (l *eventLoop) Defer(f *loop.Flush) {
	l.turns.left = true
	l.flushes.Add(f)
}

// Dial implements loop.Loop.
func (l *eventLoop) Dial(addr string, timeout time.Duration, s loop.Stream) {
	service := ""
	if d, ok := s.(loop.Destined); ok {
		service = d.Service()
	}
	c := &conn{loop: l, stream: s, remote: addr, state: connDialing, config: l.eng.configOf(service)}
	c.timer.Fire = c.timerFired
	l.adopt(c)
	l.After(timeout, &c.timer)
	if err := l.eng.dialer.add(c, time.Now().Add(timeout)); err != nil {
		c.end(err)
	}
}

// adopt makes c one of the loop's connections, until forget.
func (l *eventLoop) adopt(c *conn) {
	c.slot = len(l.conns)
	l.conns = append(l.conns, c)
}

func (l *eventLoop) forget(c *conn) {
	last := len(l.conns) - 1
	moved := l.conns[last]
	l.conns[c.slot], moved.slot = moved, c.slot
	l.conns[last] = nil
	l.conns = l.conns[:last]
}

// closeAll ends every connection, as Engine.Stop wants it.
func (l *eventLoop) closeAll() {
	for len(l.conns) > 0 {
		l.conns[len(l.conns)-1].end(nil)
	}
}

// run calls f; a panic in it is counted and goes no further.
func (l *eventLoop) run(f func()) {
	defer l.recovered(nil)
	f()
}

// recovered is deferred around every callback. It ends the connection c, if the
// callback was one's.
func (l *eventLoop) recovered(c *conn) {
	r := recover()
	if r == nil {
		return
	}
	l.eng.count.panics.Add(1)
	l.eng.log.Error("panic in a callback of the event loop", "loop", l.index, "panic", r, "stack", string(debug.Stack()))
	if c != nil && c.state != connClosed {
		c.end(ErrPanic)
	}
}

// Run implements gnet.Runnable: the turn that was asked for.
func (l *eventLoop) Run(context.Context) error {
	l.turn()
	l.errandEnds()
	return nil
}
