package reactor

import (
	"math"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// drain is the state of a connection between Drain and its end. gnet's own close sends what
// the kernel takes at that moment and loses the rest. And a close with unread input makes the
// kernel send a reset, which can destroy the last response.
type drain struct {
	left     int           // bytes not sent at the last check: of gnet, and in connLinger of the kernel
	progress time.Duration // time of the check at which left last decreased
	wait     time.Duration // until the next check
}

// lingerTime is how long a drained connection waits for its peer's end, and the interval of
// the checks after that, while the kernel still has output.
const lingerTime = time.Second

// Drain polls, because gnet has no "writable" event: first after minDrainPoll, then after
// twice the time, up to maxDrainPoll.
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
		if c.sendCloseNotify(); c.state != connOpen {
			return
		}
	}
	c.become(connDraining)
	c.timer.Fire = c.timerFired
	c.drain = drain{left: c.Buffered(), progress: c.loop.now, wait: minDrainPoll}
	c.checkDrained()
}

// checkDrained shuts the write side if all output was sent. Otherwise it checks again later,
// or closes a stalled connection.
func (c *conn) checkDrained() {
	d := &c.drain
	n := c.Buffered()
	if n == 0 {
		c.become(connLinger)
		if err := unix.Shutdown(c.gc.Fd(), unix.SHUT_WR); err != nil {
			c.end(nil) // the peer has closed already
			return
		}
		d.left = math.MaxInt // from here on the kernel's output is counted
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

// checkLinger closes the connection when it has waited for the peer's end. While the kernel
// still delivers output to a slow peer it waits on: a reset would destroy that output.
func (c *conn) checkLinger() {
	n, err := kernel.Unacknowledged(c.gc.Fd())
	if err != nil || n == 0 || c.stalled(n) {
		c.end(nil)
		return
	}
	c.loop.After(c.loop.eng.linger, &c.timer)
}

// stalled reports whether the output, with n bytes left, made no progress for WriteStall.
func (c *conn) stalled(n int) bool {
	d := &c.drain
	if n < d.left {
		d.left, d.progress = n, c.loop.now
		return false
	}
	return c.loop.now-d.progress >= time.Duration(c.loop.eng.stall.Load())
}

// kernelListener is a net.Listener on a socket of its own.
type kernelListener interface {
	syscall.Conn
	SetDeadline(t time.Time) error
}

// longAgo is a deadline that ends an accept at once.
var longAgo = time.Unix(1, 0)

// maxRest bounds the connections that Close accepts: a backlog is seldom longer.
const maxRest = 4096

// acceptRest accepts the connections in the kernel's backlog, without waiting for more. Nobody else may
// be in an accept: the kernel closes the socket only after that, and connections may come meanwhile.
func (l *Listener) acceptRest(ln kernelListener) {
	raw, err := ln.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		for range maxRest {
			nc, err := kernel.Accept(int(fd))
			if err != nil {
				return
			}
			l.onAccept(nc)
		}
	})
}
