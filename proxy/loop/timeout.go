package loop

import "time"

// TimeoutKind is what a session waits for.
type TimeoutKind uint8

const (
	TimeoutOff  TimeoutKind = iota // nothing
	TimeoutIdle                    // the next message
	TimeoutHead                    // the rest of a head
	TimeoutBody                    // the rest of a body
)

// Timeout is a session's one timeout at a time. Setting it again for each message
// costs no timer operation: the timer stays armed for an earlier moment, and
// when it fires too early it is armed for what is left.
type Timeout struct {
	loop    Loop
	timer   Timer
	kind    TimeoutKind
	expires time.Duration
	armed   time.Duration // when timer fires
	do      func(TimeoutKind)
}

func (c *Timeout) Init(l Loop, do func(TimeoutKind)) {
	c.loop, c.do = l, do
	c.timer.Fire = c.fire
}

func (c *Timeout) Start(k TimeoutKind, d time.Duration) {
	c.kind, c.expires = k, c.loop.Now()+d
	if !c.timer.Armed() || c.armed > c.expires {
		c.armed = c.expires
		c.loop.After(d, &c.timer)
	}
}

// StartIdle starts the idle timeout.
func (c *Timeout) StartIdle(d time.Duration) { c.Start(TimeoutIdle, d) }

func (c *Timeout) Running(k TimeoutKind) bool { return c.kind == k }

// Stop leaves the timer armed; it will find nothing to do.
func (c *Timeout) Stop() { c.kind = TimeoutOff }

// Close disarms the timer too.
func (c *Timeout) Close() {
	c.kind = TimeoutOff
	c.loop.Stop(&c.timer)
}

func (c *Timeout) fire() {
	if c.kind == TimeoutOff {
		return
	}
	if left := c.expires - c.loop.Now(); left > 0 {
		c.armed = c.expires
		c.loop.After(left, &c.timer)
		return
	}
	k := c.kind
	c.kind = TimeoutOff
	c.do(k)
}
