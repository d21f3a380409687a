package sim

import (
	"math"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// Faults injects faults into a World: into its processes, hosts, network and connections. A
// fault happens between turns: the test, or a script given to At, calls its method.
type Faults struct{ w *World }

// Pause stops l for d: its timers, reads, writes and posts wait. Its kernel continues to
// accept connections, and input as far as it fits the receive buffer.
func (f Faults) Pause(l *Loop, d time.Duration) {
	f.begin(l, "Pause")
	l.busyUntil = max(l.busyUntil, f.w.clock.now+d)
	l.waking = false // ignore a wake before the end
	l.need(f.w.clock.now)
}

// Crash ends l's process: its core is never called again, it has no listeners or timers,
// and its kernel closes its connections, with a reset if input was unread. Loop(name)
// starts the process again, without state.
func (f Faults) Crash(l *Loop) {
	f.begin(l, "Crash")
	for _, c := range l.kill() {
		if c.end.peer != nil {
			c.end.close()
		}
	}
}

// Vanish takes l's host off the network, as a power cut does: peers receive nothing, and
// dials time out, until Loop(name) starts it again. From then on it resets old
// connections of peers that send.
func (f Faults) Vanish(l *Loop) {
	f.begin(l, "Vanish")
	l.host.down = true
	for _, other := range f.w.loops {
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
func (h *host) revive() {
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
	l.w.Net.stopListening(l)
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

// Partition stops all segments between hosts a and b. They arrive after Heal, as retransmissions do: those of a
// connection after up to as long as the first of them was stopped.
func (f Faults) Partition(a, b string) {
	f.PartitionOneWay(a, b)
	f.PartitionOneWay(b, a)
}

// PartitionOneWay stops all segments from one host to another.
func (f Faults) PartitionOneWay(from, to string) {
	f.begin(nil, "Partition")
	n := &f.w.Net
	n.link(n.host(from), n.host(to)).cut = true
}

// Heal ends the partitions between hosts a and b, in both directions.
func (f Faults) Heal(a, b string) {
	f.begin(nil, "Heal")
	n := &f.w.Net
	n.link(n.host(a), n.host(b)).cut = false
	n.link(n.host(b), n.host(a)).cut = false
	n.release()
}

// Blackhole makes dials to addr time out while on.
func (f Faults) Blackhole(addr string, on bool) {
	f.begin(nil, "Blackhole")
	f.w.Net.black[addr] = on
}

// Reset breaks the connection of c: both ends get a reset, and segments on their way are
// lost.
func (f Faults) Reset(c loop.Conn) {
	f.begin(nil, "Reset")
	if c := c.(*conn); c.end.peer != nil {
		c.end.breakDown()
	}
}

// ResetAll breaks every connection between hosts a and b.
func (f Faults) ResetAll(a, b string) {
	f.begin(nil, "ResetAll")
	for _, l := range f.w.loops {
		for _, c := range l.conns {
			if c.end.peer != nil && (c.end.link.from.name == a && c.end.link.to.name == b) {
				c.end.breakDown()
			}
		}
	}
}

// PauseReading stops c's loop from reading it while on, so that its receive buffer and then the
// peer's buffers fill.
func (f Faults) PauseReading(c loop.Conn, on bool) {
	f.begin(nil, "PauseReading")
	cc := c.(*conn)
	cc.paused = on
	if !on && cc.state < stateClosed {
		cc.ready()
	}
}

// HalfClose shuts the write side of c after its output. c continues to read, as some
// clients do. Its later writes do nothing.
func (f Faults) HalfClose(c loop.Conn) {
	f.begin(nil, "HalfClose")
	cc := c.(*conn)
	cc.half = true
	cc.ready()
}

// Distrust makes the peer of c, which is open, reject the certificate of c's process. A World has no TLS, so no certificate is
// needed.
func (f Faults) Distrust(c loop.Conn) {
	f.begin(nil, "Distrust")
	other := c.(*conn).end.peer.conn
	other.loop.Do(func() {
		if r, ok := other.receiver.(loop.Verified); ok {
			r.OnUntrusted()
			return
		}
		other.Close()
	})
}

func (c *conn) shutHalf() {
	if c.half && c.end.out.written == c.end.out.kernel {
		c.end.sendFin()
	}
}

// begin records a fault. It panics inside a callback.
func (f Faults) begin(l *Loop, name string) {
	if now := f.w.current; now != nil {
		panic("sim: " + name + " inside a callback of loop " + now.name)
	}
	f.w.trace.note(evkFault, l, nil, 0)
}
