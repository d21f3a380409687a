package reactor

import (
	"io"
	"math"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// drain is the state of a connection between Drain and its end. A close with unread input makes the
// kernel send a reset, which can destroy the last response.
type drain struct {
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
	c.timer = &loop.Timer{Fire: c.timerFired}
	c.drain = drain{left: c.Buffered(), progress: c.loop.now}
	c.checkDrained()
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

// checkDrained shuts the write side if all output was sent, or closes a stalled connection. It is
// called after each write, and when the time for progress has passed.
func (c *conn) checkDrained() {
	d := &c.drain
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
		c.loop.After(c.loop.eng.linger, c.timer)
	case c.stalled(n):
		c.end(nil)
	case !c.timer.Armed():
		c.loop.After(d.progress+c.loop.eng.writeStall()-c.loop.now, c.timer)
	}
}

// checkLinger closes the connection when it has waited for the peer's end. While the kernel
// still delivers output to a slow peer it waits on: a reset would destroy that output.
func (c *conn) checkLinger() {
	n, err := kernel.Unacknowledged(c.fd)
	if err != nil || n == 0 || c.stalled(n) {
		c.end(nil)
		return
	}
	c.loop.After(c.loop.eng.linger, c.timer)
}

// stalled reports whether the output, with n bytes left, made no progress for WriteStall.
func (c *conn) stalled(n int) bool {
	d := &c.drain
	if n < d.left {
		d.left, d.progress = n, c.loop.now
		return false
	}
	return c.loop.now-d.progress >= c.loop.eng.writeStall()
}

// onEOF receives the peer's end. A drain still sends what is buffered, and so does a stream that stays.
func (c *conn) onEOF() {
	c.eof = true
	switch {
	case c.err != nil: // the kernel reports a failure once
		c.broken(c.err)
	case c.state == connDraining, c.state == connOpen && c.ended:
	case c.secure == nil && c.stays():
	default:
		c.broken(io.EOF)
	}
}

// stays tells the stream that the peer's output has ended, and reports whether the connection stays open
// for what the stream has to send.
func (c *conn) stays() bool {
	s, ok := c.stream.(loop.HalfCloser)
	if !ok || c.state != connOpen || kernel.Gone(c.fd) {
		return false
	}
	c.ended = true
	return s.OnEnd()
}
