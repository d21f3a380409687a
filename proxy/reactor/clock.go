package reactor

import (
	"errors"
	"net"
	"os"
	"time"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

// clock is a loop's time: the monotonic clock, and a timerfd in the loop's own epoll set. So a
// timer is an event like any other, and needs no other goroutine or thread.
type clock struct {
	epoch
	fd    int
	armed time.Duration // when the timerfd fires; 0 means that it is not set
}

// epoch is the start of an engine's time, the same for all its loops.
type epoch struct {
	start time.Time
	base  time.Duration // CLOCK_MONOTONIC at start
}

// now returns the time since the start. It is never 0.
func (e *epoch) now() time.Duration { return time.Since(e.start) + 1 }

// enroll creates the timerfd and enrolls it on one of client's loops, with l as its context.
//
// gnet accepts stream sockets only. But it only duplicates the descriptor of a net.Conn and
// then calls epoll_ctl, read and close on it, and a timerfd supports all three. So enroll
// replaces the descriptor of a socket by the timerfd before gnet sees it.
func (c *clock) enroll(client *gnet.Client, l *eventLoop) (err error) {
	c.fd, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("timerfd_create", err)
	}
	carrier, err := socket()
	if err != nil {
		return err
	}
	raw, err := carrier.(*net.UnixConn).SyscallConn()
	if err != nil {
		return errors.Join(err, carrier.Close())
	}
	var dup error
	err = raw.Control(func(fd uintptr) { dup = unix.Dup3(c.fd, int(fd), unix.O_CLOEXEC) })
	if err = errors.Join(err, dup); err != nil {
		return errors.Join(err, carrier.Close())
	}
	_, err = client.EnrollContext(carrier, l) // closes carrier
	return err
}

// calibrate relates two ways to read the monotonic clock: time.Time, which needs no system
// call, and CLOCK_MONOTONIC, which the timerfd uses. base is read second, so a timer may be
// late by the time between the two, but never early.
func (e *epoch) calibrate() error {
	var ts unix.Timespec
	for best, try := time.Hour, 0; try < 5; try++ {
		start := time.Now()
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			return os.NewSyscallError("clock_gettime", err)
		}
		if took := time.Since(start); took < best {
			best, e.start, e.base = took, start, time.Duration(ts.Nano())
		}
	}
	return nil
}

func (c *clock) close() error {
	if c.fd == 0 {
		return nil
	}
	return os.NewSyscallError("close", unix.Close(c.fd))
}

// set makes the timerfd fire at at, or at once if that is past.
func (c *clock) set(at time.Duration) error {
	c.armed = at
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(c.base + at))}
	return os.NewSyscallError("timerfd_settime", unix.TimerfdSettime(c.fd, unix.TFD_TIMER_ABSTIME, &spec, nil))
}

// fire makes the timerfd fire at once. It may be called from any goroutine.
func (c *clock) fire() {
	past := unix.ItimerSpec{Value: unix.Timespec{Nsec: 1}}
	_ = unix.TimerfdSettime(c.fd, unix.TFD_TIMER_ABSTIME, &past, nil) // can't fail: fd and value are valid
}

// socket returns one end of a socket pair whose other end is closed.
func socket() (net.Conn, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	_ = unix.Close(pair[1])
	file := os.NewFile(uintptr(pair[0]), "timer")
	defer file.Close()
	return net.FileConn(file)
}

// rearm sets the timerfd if the nearest timer is due earlier than it fires. The timerfd is
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
		l.eng.log.Error("timers of an event loop have stopped: the timerfd can't be set", "loop", l.index, "error", err)
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
