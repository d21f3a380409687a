package reactor

import (
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// eventLoop is one event loop with its connections, timers and deferred work. Only gnet's
// goroutine of that loop may access it, except the atomics and the fields that mu guards.
type eventLoop struct {
	eng   *Engine
	el    gnet.EventLoop // set at boot, when the loop's timerfd arrives
	index int

	now  time.Duration
	busy bool // between beginCallbacks and endEvent

	clock   clock
	timers  loop.Timers
	flushes loop.Flushes
	closed  []*conn // closed connections whose OnClose was not called yet
	spare   []*conn // the other half of the double buffer of closed
	conns   []*conn // open or being dialled, in no order

	turns turns    // turn.go
	idle  idleWait // idlewait.go
	stats stats.LoopStats

	// decrypted and encrypted are the output of TLS within an event, nil before its first use.
	decrypted, encrypted []byte

	// load is the number of connections on this loop or on their way to it. Accepted
	// connections go to the loop with the least load.
	load atomic.Int64

	arrivals chan struct{} // has a token for each connection that gnet has duplicated and not registered

	mu          sync.Mutex
	posts       []func()
	posted      []func() // the other half of posts' double buffer
	turnPending bool     // a turn that takes posts was asked for, or is running
	retired     bool     // gnet's loop must no longer be called
}

// maxArriving limits the connections on their way to a loop that have two descriptors.
const maxArriving = 16

var _ stats.Metered = (*eventLoop)(nil)

// Stats implements stats.Metered.
func (l *eventLoop) Stats() stats.LoopStats {
	l.stats.Connections = len(l.conns)
	return l.stats
}

// Now implements loop.Loop.
func (l *eventLoop) Now() time.Duration { return l.now }

// After implements loop.Loop. The timerfd is set at the end of the event, so a timer that is
// stopped before then costs no system call.
func (l *eventLoop) After(d time.Duration, t *loop.Timer) {
	l.timers.Arm(t, l.now+min(max(d, 0), maxDelay))
}

// maxDelay, 73 years, does not overflow when the clock's time is added.
const maxDelay = time.Duration(1 << 61)

// Stop implements loop.Loop.
func (l *eventLoop) Stop(t *loop.Timer) { l.timers.Disarm(t) }

// Defer implements loop.Loop.
func (l *eventLoop) Defer(f *loop.Flush) {
	l.turns.workLeft = true
	l.flushes.Add(f)
}

// Dial implements loop.Loop.
func (l *eventLoop) Dial(addr string, timeout time.Duration, s loop.Stream) {
	service, name := "", ""
	if d, ok := s.(loop.Destined); ok {
		service = d.Service()
	}
	if d, ok := s.(loop.Named); ok {
		name = d.ServerName()
	}
	c := &conn{loop: l, stream: s, remote: addr, state: connDialing, config: l.eng.dialTLS(service, addr, name)}
	if d, ok := s.(loop.Negotiated); ok && c.config != nil {
		c.config = requireALPN(c.config, d.ALPN())
	}
	c.timer.Fire = c.timerFired
	l.adopt(c)
	l.After(timeout, &c.timer)
	if err := l.eng.dialer.add(c, time.Now().Add(timeout)); err != nil {
		c.end(err)
	}
}

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

func (l *eventLoop) closeAll() {
	for len(l.conns) > 0 {
		l.conns[len(l.conns)-1].end(nil)
	}
}

// run calls f, and recovers from its panic.
func (l *eventLoop) run(f func()) {
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
	l.eng.count.panics.Add(1)
	l.eng.log.Error("panic in a callback of the event loop", "loop", l.index, "panic", r, "stack", string(debug.Stack()))
	if c != nil && c.state != connClosed {
		c.end(ErrPanic)
	}
}
