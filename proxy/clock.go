package proxy

import "time"

// clockKind is what a session waits for.
type clockKind uint8

const (
	clockOff  clockKind = iota // nothing
	clockIdle                  // the next message
	clockHead                  // the rest of a head
	clockBody                  // the rest of a body
)

// clock is a session's one timeout at a time. Setting it again for each message
// costs no timer operation: the timer stays armed for an earlier moment, and
// when it fires too early it is armed for what is left.
type clock struct {
	loop    Loop
	timer   Timer
	kind    clockKind
	expires time.Duration
	armed   time.Duration // when timer fires
	do      func(clockKind)
}

func (c *clock) init(l Loop, do func(clockKind)) {
	c.loop, c.do = l, do
	c.timer.Fire = c.fire
}

func (c *clock) start(k clockKind, d time.Duration) {
	c.kind, c.expires = k, c.loop.Now()+d
	if !c.timer.Armed() || c.armed > c.expires {
		c.armed = c.expires
		c.loop.After(d, &c.timer)
	}
}

// set starts the idle timeout.
func (c *clock) set(d time.Duration) { c.start(clockIdle, d) }

func (c *clock) running(k clockKind) bool { return c.kind == k }

// stop leaves the timer armed; it will find nothing to do.
func (c *clock) stop() { c.kind = clockOff }

// close disarms the timer too.
func (c *clock) close() {
	c.kind = clockOff
	c.loop.Stop(&c.timer)
}

func (c *clock) fire() {
	if c.kind == clockOff {
		return
	}
	if left := c.expires - c.loop.Now(); left > 0 {
		c.armed = c.expires
		c.loop.After(left, &c.timer)
		return
	}
	k := c.kind
	c.kind = clockOff
	c.do(k)
}
