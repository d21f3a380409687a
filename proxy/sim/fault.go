package sim

import (
	"fmt"
	"math"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// Faults are made between turns: from the test, or from a script given to At.

// Pause stops l for d: its timers, reads, writes and posts wait. Its kernel goes
// on, which accepts connections and takes in what fits the receive buffer.
func (w *World) Pause(l *Loop, d time.Duration) {
	w.fault(l, "Pause")
	l.busyUntil = max(l.busyUntil, w.now+d)
	l.waking = false // a wake before the end counts no more
	l.need(w.now)
}

// Crash kills l's process: its core is never called again, its listeners and
// timers are gone, and its kernel closes its connections, by reset where input
// was unread. Loop(name) starts it anew, empty.
func (w *World) Crash(l *Loop) {
	w.fault(l, "Crash")
	for _, c := range l.kill() {
		if c.peer != nil {
			c.closeKernel()
		}
	}
}

// Vanish takes l's host off the network without a word, as a power cut does:
// peers hear nothing, and dials are not answered, until Loop(name) starts it
// anew; then their segments are answered by a reset.
func (w *World) Vanish(l *Loop) {
	w.fault(l, "Vanish")
	l.host.down = true
	for _, other := range w.loops {
		if other.host == l.host && !other.dead {
			for _, c := range other.kill() {
				c.out.dead = true
				l.host.ghosts = append(l.host.ghosts, c)
			}
		}
	}
}

// revive ends a Vanish. Peers that still send hear of it now; the others when
// they next send something.
func (w *World) revive(h *host) {
	h.down = false
	for _, c := range h.ghosts {
		if c.peer != nil && c.peer.out.sent > c.peer.out.arrived {
			c.sendReset()
		}
	}
	h.ghosts = nil
}

// kill stops l and returns the connections it had.
func (l *Loop) kill() []*conn {
	l.dead = true
	for addr, ln := range l.w.listeners {
		if ln.loop == l {
			delete(l.w.listeners, addr)
		}
	}
	for l.timers.Pop(math.MaxInt64, math.MaxUint64) != nil {
	}
	l.flushes.Take()
	conns := l.conns
	l.conns, l.due, l.posts, l.closed = nil, nil, nil, nil
	for _, c := range conns {
		c.state = stateGone
	}
	return conns
}

// Partition stops all that goes from host a to host b and back. What is sent
// meanwhile, or on its way, arrives some time after Heal, as retransmissions do.
func (w *World) Partition(a, b string) {
	w.PartitionOneWay(a, b)
	w.PartitionOneWay(b, a)
}

// PartitionOneWay stops all that goes from one host to another.
func (w *World) PartitionOneWay(from, to string) {
	w.fault(nil, "Partition")
	w.link(w.host(from), w.host(to)).cut = true
}

// Heal ends the partitions between hosts a and b, in both directions.
func (w *World) Heal(a, b string) {
	w.fault(nil, "Heal")
	w.link(w.host(a), w.host(b)).cut = false
	w.link(w.host(b), w.host(a)).cut = false
	held := w.held
	w.held = nil
	for _, e := range held {
		if w.stopped(&e) {
			w.held = append(w.held, e)
			continue
		}
		e.at = w.now + w.route(&e).delay(w)
		w.push(e)
	}
}

// route is the link that e travels on.
func (w *World) route(e *event) *link {
	switch e.kind {
	case evReset, evOpen, evRefuse: // travel to c
		return w.link(e.c.link.to, e.c.link.from)
	default:
		return e.c.link
	}
}

// stopped tells whether e cannot arrive now.
func (w *World) stopped(e *event) bool { return w.route(e).cut }

// Blackhole has dials to addr never answered, or answered again.
func (w *World) Blackhole(addr string, on bool) {
	w.fault(nil, "Blackhole")
	w.black[addr] = on
}

// Reset breaks the connection that c is an end of: both ends get a reset, and
// what is on its way is lost.
func (w *World) Reset(c loop.Conn) {
	w.fault(nil, "Reset")
	if c := c.(*conn); c.peer != nil {
		c.breakDown()
	}
}

// ResetAll breaks every connection between hosts a and b.
func (w *World) ResetAll(a, b string) {
	w.fault(nil, "ResetAll")
	for _, l := range w.loops {
		for _, c := range l.conns {
			if c.peer != nil && (c.link.from.name == a && c.link.to.name == b) {
				c.breakDown()
			}
		}
	}
}

// Hold has c's loop not read from it while on, so that its receive buffer and
// then the peer's buffers fill up.
func (w *World) Hold(c loop.Conn, on bool) {
	w.fault(nil, "Hold")
	cc := c.(*conn)
	cc.held = on
	if !on && cc.state < stateClosed {
		cc.ready()
	}
}

// HalfClose shuts the write side of c after what was written, and c goes on
// reading, as some clients do. Its later writes do nothing.
func (w *World) HalfClose(c loop.Conn) {
	w.fault(nil, "HalfClose")
	cc := c.(*conn)
	cc.half = true
	cc.ready()
}

func (c *conn) shutHalf() {
	if c.half && c.out.fin == finNone && c.out.written == c.out.kernel {
		c.out.fin = finWanted
		c.transmit()
	}
}

func (w *World) fault(l *Loop, name string) {
	if w.current != nil {
		panic("sim: " + name + " inside a callback of loop " + w.current.name)
	}
	w.note(evkFault, l, nil, 0)
}

// Leftovers lists what is left of a mesh that should be at rest: connections,
// armed timers, and work queued on loops that live. Empty means none.
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
