package reactor

import (
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// clock is a loop's time: the monotonic clock, and a timer in the loop's own epoll set. So a
// timer is an event like any other, and needs no other goroutine or thread.
type clock struct {
	epoch
	timer *kernel.Timer // nil before enroll
	armed time.Duration // when the timer fires; 0 means that it is not set
}

// epoch is the start of an engine's time, the same for all its loops.
type epoch struct {
	start time.Time
	base  time.Duration // kernel.Monotonic at start
}

// now returns the time since the start. It is never 0.
func (e *epoch) now() time.Duration { return time.Since(e.start) + 1 }

// enroll creates the timer and enrolls it on one of client's loops, with l as its context.
func (c *clock) enroll(client *gnet.Client, l *eventLoop) error {
	timer, carrier, err := kernel.NewTimer()
	if err != nil {
		return err
	}
	c.timer = timer
	_, err = client.EnrollContext(carrier, l) // closes carrier
	return err
}

// calibrate relates two ways to read the monotonic clock: time.Time, which needs no system
// call, and kernel.Monotonic, which the timer uses. base is read second, so a timer may be
// late by the time between the two, but never early.
func (e *epoch) calibrate() error {
	for best, try := time.Hour, 0; try < 5; try++ {
		start := time.Now()
		base, err := kernel.Monotonic()
		if err != nil {
			return err
		}
		if took := time.Since(start); took < best {
			best, e.start, e.base = took, start, base
		}
	}
	return nil
}

func (c *clock) close() error {
	if c.timer == nil {
		return nil
	}
	return c.timer.Close()
}

// set makes the timer fire at at, or at once if that is past.
func (c *clock) set(at time.Duration) error {
	c.armed = at
	return c.timer.Set(c.base + at)
}

// rearm sets the timer of the system if the nearest timer is due earlier than it fires. That is
// never set to a later time or stopped: an early event finds no timer due and sets it again.
// So timeouts of requests, most of which are stopped, cost no system call.
func (l *eventLoop) rearm() {
	at, ok := l.timers.Next()
	if l.turns.byTimer {
		at, ok = l.now, true
	}
	if !ok || l.clock.armed != 0 && l.clock.armed <= at {
		return
	}
	if err := l.clock.set(at); err != nil {
		l.eng.log.Error("timers of an event loop have stopped: the timer can't be set", "loop", l.index, "error", err)
	}
}

// timerFired runs the timers that are due and ends the turn. A timer that they arm, even with
// delay 0, waits for the next event.
func (l *eventLoop) timerFired() {
	l.beginEvent()
	l.clock.armed = 0
	again := l.turns.byTimer
	limit := l.timers.LastSeq()
	for t := l.timers.Pop(l.now, limit); t != nil; t = l.timers.Pop(l.now, limit) {
		l.run(t.Fire)
	}
	if again {
		l.endTurnWithPosts()
	} else {
		l.endTurn()
	}
	l.endEvent()
}
