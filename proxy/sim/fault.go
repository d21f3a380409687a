package sim

import (
	"fmt"
	"math"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// A fault happens between turns: the test, or a script given to At, calls its method.

// Pause stops l for d: its timers, reads, writes and posts wait. Its kernel continues to
// accept connections, and input as far as it fits the receive buffer.
func (w *World) Pause(l *Loop, d time.Duration) {
	w.fault(l, "Pause")
	l.busyUntil = max(l.busyUntil, w.now+d)
	l.waking = false // ignore a wake before the end
	l.need(w.now)
}

// Crash ends l's process: its core is never called again, it has no listeners or timers,
// and its kernel closes its connections, with a reset if input was unread. Loop(name)
// starts the process again, without state.
func (w *World) Crash(l *Loop) {
	w.fault(l, "Crash")
	for _, c := range l.kill() {
		if c.end.peer != nil {
			c.end.close()
		}
	}
}

// Vanish takes l's host off the network, as a power cut does: peers receive nothing, and
// dials time out, until Loop(name) starts it again. From then on it resets old
// connections of peers that send.
func (w *World) Vanish(l *Loop) {
	w.fault(l, "Vanish")
	l.host.down = true
	for _, other := range w.loops {
		if other.host == l.host && !other.dead {
			for _, c := range other.kill() {
				c.end.out.dead = true
				l.host.ghosts = append(l.host.ghosts, c)
			}
		}
	}
}

// revive ends a Vanish. Peers with output on its way get a reset now, the others when they
// send.
func (w *World) revive(h *host) {
	h.down = false
	for _, c := range h.ghosts {
		if c.end.peer != nil && c.end.peer.out.sent > c.end.peer.out.arrived {
			c.end.sendReset()
		}
	}
	h.ghosts = nil
}

// kill stops l and returns its connections.
func (l *Loop) kill() []*conn {
	l.dead = true
	for addr, ln := range l.w.network.listeners {
		if ln.loop == l {
			delete(l.w.network.listeners, addr)
		}
	}
	for l.timers.Pop(math.MaxInt64, math.MaxUint64) != nil {
	}
	l.flushes.Take()
	conns := l.conns
	l.conns, l.due, l.posts, l.closed = nil, nil, nil, nil
	for _, c := range conns {
		c.become(stateGone)
	}
	return conns
}

// Partition stops all segments between hosts a and b. They arrive some time after Heal, as
// retransmissions do.
func (w *World) Partition(a, b string) {
	w.PartitionOneWay(a, b)
	w.PartitionOneWay(b, a)
}

// PartitionOneWay stops all segments from one host to another.
func (w *World) PartitionOneWay(from, to string) {
	w.fault(nil, "Partition")
	w.network.link(w.network.host(from), w.network.host(to)).cut = true
}

// Heal ends the partitions between hosts a and b, in both directions.
func (w *World) Heal(a, b string) {
	w.fault(nil, "Heal")
	w.network.link(w.network.host(a), w.network.host(b)).cut = false
	w.network.link(w.network.host(b), w.network.host(a)).cut = false
	held := w.network.held
	w.network.held = nil
	for _, e := range held {
		if w.network.stopped(&e) {
			w.network.held = append(w.network.held, e)
			continue
		}
		e.at = w.now + w.network.route(&e).delay(w)
		w.push(e)
	}
}

// route returns the link of e.
func (n *network) route(e *event) *link {
	switch e.kind {
	case evReset, evOpen, evRefuse: // these go to c
		return n.link(e.c.end.link.to, e.c.end.link.from)
	default:
		return e.c.end.link
	}
}

// stopped reports whether a partition stops e.
func (n *network) stopped(e *event) bool { return n.route(e).cut }

// Blackhole makes dials to addr time out while on.
func (w *World) Blackhole(addr string, on bool) {
	w.fault(nil, "Blackhole")
	w.network.black[addr] = on
}

// Reset breaks the connection of c: both ends get a reset, and segments on their way are
// lost.
func (w *World) Reset(c loop.Conn) {
	w.fault(nil, "Reset")
	if c := c.(*conn); c.end.peer != nil {
		c.end.breakDown()
	}
}

// ResetAll breaks every connection between hosts a and b.
func (w *World) ResetAll(a, b string) {
	w.fault(nil, "ResetAll")
	for _, l := range w.loops {
		for _, c := range l.conns {
			if c.end.peer != nil && (c.end.link.from.name == a && c.end.link.to.name == b) {
				c.end.breakDown()
			}
		}
	}
}

// PauseReading stops c's loop from reading it while on, so that its receive buffer and then the
// peer's buffers fill.
func (w *World) PauseReading(c loop.Conn, on bool) {
	w.fault(nil, "PauseReading")
	cc := c.(*conn)
	cc.paused = on
	if !on && cc.state < stateClosed {
		cc.ready()
	}
}

// HalfClose shuts the write side of c after its output. c continues to read, as some
// clients do. Its later writes do nothing.
func (w *World) HalfClose(c loop.Conn) {
	w.fault(nil, "HalfClose")
	cc := c.(*conn)
	cc.half = true
	cc.ready()
}

func (c *conn) shutHalf() {
	if c.half && c.end.out.written == c.end.out.kernel {
		c.end.sendFin()
	}
}

func (w *World) fault(l *Loop, name string) {
	if w.current != nil {
		panic("sim: " + name + " inside a callback of loop " + w.current.name)
	}
	w.note(evkFault, l, nil, 0)
}

// Leftovers returns a line for each connection, armed timer and queued work of a world that
// should be idle. Loops that have crashed don't count.
func (w *World) Leftovers() []string {
	var left []string
	for _, l := range w.loops {
		if l.dead {
			continue
		}
		for _, c := range l.conns {
			left = append(left, fmt.Sprintf("%s: connection %d to %s", l.name, c.id, c.remote))
		}
		if n := l.timers.Len(); n > 0 {
			left = append(left, fmt.Sprintf("%s: %d timers armed", l.name, n))
		}
		if n := len(l.posts); n > 0 || !l.flushes.Empty() {
			left = append(left, fmt.Sprintf("%s: work queued for the next turn", l.name))
		}
	}
	return left
}
