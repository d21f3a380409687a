package reactor

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// drain is the state of a connection between Drain and its end. gnet's own
// close sends what the kernel takes at that moment and loses the rest, and a
// close with unread input makes the kernel send a reset, which can destroy the
// last answer on its way.
type drain struct {
	left     int           // bytes not sent when last looked: first of gnet's, then of the kernel's
	progress time.Duration // when that last sank
	wait     time.Duration // until the next look
}

// lingerTime is how long a drained connection waits for its peer's end, and how
// often it looks after that whether the kernel still has output.
const lingerTime = time.Second

// Drain polls, because gnet has no "writable" event: first after minDrainPoll,
// then at double the time up to maxDrainPoll.
const (
	minDrainPoll = 500 * time.Microsecond
	maxDrainPoll = 16 * time.Millisecond
)

// Drain implements loop.Conn.
func (c *conn) Drain() {
	if c.state != connOpen {
		return
	}
	if c.secure != nil {
		if c.notify(); c.state != connOpen {
			return
		}
	}
	c.become(connDraining)
	c.timer.Fire = c.timerFired
	c.drain = drain{left: c.Buffered(), progress: c.loop.now, wait: minDrainPoll}
	c.drained()
}

// drained looks whether the output has left; if so, the write side is shut.
func (c *conn) drained() {
	d := &c.drain
	n := c.Buffered()
	if n == 0 {
		c.become(connLinger)
		if err := unix.Shutdown(c.gc.Fd(), unix.SHUT_WR); err != nil {
			c.end(nil) // the peer is gone already
			return
		}
		d.left = math.MaxInt // the kernel's output is another count
		c.loop.After(c.loop.eng.linger, &c.timer)
		return
	}
	if c.stalled(n) {
		c.end(nil)
		return
	}
	c.loop.After(d.wait, &c.timer)
	d.wait = min(2*d.wait, maxDrainPoll)
}

// lingered is the end of the wait for the peer's end, unless the kernel has yet
// to deliver output to a slow peer: the reset would destroy that.
func (c *conn) lingered() {
	n, err := unix.IoctlGetInt(c.gc.Fd(), unix.SIOCOUTQ)
	if err != nil || n == 0 || c.stalled(n) {
		c.end(nil)
		return
	}
	c.loop.After(c.loop.eng.linger, &c.timer)
}

// stalled tells whether the peer has taken nothing of the output, of which n
// bytes are left, for WriteStall.
func (c *conn) stalled(n int) bool {
	d := &c.drain
	if n < d.left {
		d.left, d.progress = n, c.loop.now
		return false
	}
	return c.loop.now-d.progress >= time.Duration(c.loop.eng.stall.Load())
}
