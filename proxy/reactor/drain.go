package reactor

import (
	"math"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// drain is a connection between Drain and its end. A close with unread input makes the kernel send a reset,
// which can destroy the last response. So the output is sent, the write side is shut, and the peer's end is
// awaited.
type drain struct {
	c        *conn
	timer    loop.Timer
	left     int           // bytes not sent at the last check; in connLinger those of the kernel
	progress time.Duration // time of the check at which left last decreased
}

// lingerTime is how long a drained connection waits for its peer's end, and the interval of
// the checks after that, while the kernel still has output.
const lingerTime = time.Second

// Drain implements loop.Conn.
func (c *conn) Drain() {
	if c.state != connOpen {
		return
	}
	if c.secure != nil {
		if c.sendCloseNotify(); c.state != connOpen {
			return
		}
	}
	c.become(connDraining)
	c.awaits.then = nil
	c.drain = &drain{c: c, left: c.Buffered(), progress: c.loop.now}
	c.drain.timer.Fire = c.drain.check
	c.drain.check()
}

// Finish implements loop.Conn. The kernel sends what it has after a close, if all input was read.
func (c *conn) Finish() {
	if c.state != connOpen {
		return
	}
	if n, err := kernel.Unread(c.fd); err == nil && n == 0 && c.Buffered() == 0 {
		c.Close()
		return
	}
	c.Drain()
}

// check is called after each write, and by the timer.
func (d *drain) check() {
	if d.c.state == connDraining {
		d.checkOutput()
	} else {
		d.checkLinger()
	}
}

// checkOutput shuts the write side if all output was sent, or closes a stalled connection.
func (d *drain) checkOutput() {
	c := d.c
	n := c.Buffered()
	switch {
	case n == 0 && c.eof:
		c.end(nil) // the kernel sends what it has, as there is no unread input
	case n == 0:
		c.become(connLinger)
		if c.shutdown() != nil {
			c.end(nil) // the peer has closed already
			return
		}
		d.left = math.MaxInt // from here on the kernel's output is counted
		c.loop.After(c.loop.reactor.linger, &d.timer)
	case d.stalled(n):
		c.end(nil)
	case !d.timer.Armed():
		c.loop.After(d.progress+c.loop.reactor.writeStall()-c.loop.now, &d.timer)
	}
}

// checkLinger closes the connection when it has waited for the peer's end. While the kernel
// still delivers output to a slow peer it waits on: a reset would destroy that output.
func (d *drain) checkLinger() {
	c := d.c
	n, err := kernel.Unacknowledged(c.fd)
	if err != nil || n == 0 || d.stalled(n) {
		c.end(nil)
		return
	}
	c.loop.After(c.loop.reactor.linger, &d.timer)
}

// stalled reports whether the output, with n bytes left, made no progress for WriteStall.
func (d *drain) stalled(n int) bool {
	l := d.c.loop
	if n < d.left {
		d.left, d.progress = n, l.now
		return false
	}
	return l.now-d.progress >= l.reactor.writeStall()
}
