package reactor

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

// clock is a loop's time: the monotonic clock, and a timerfd that lies in the
// loop's own epoll set, so that a timer is an event like any other, with no
// other goroutine, thread or wake-up between the kernel and the loop.
type clock struct {
	epoch
	fd    int
	armed time.Duration // when the timerfd is due; 0: not at all
}

// epoch is where an engine's time begins, the same for all of its loops.
type epoch struct {
	start time.Time
	base  time.Duration // CLOCK_MONOTONIC at start
}

// now is the time since the start, and never 0.
func (e *epoch) now() time.Duration { return time.Since(e.start) + 1 }

// enroll creates the timerfd and puts it on one of client's loops, with l as
// its context.
//
// gnet takes stream sockets only. But what it takes of a net.Conn is a
// duplicate of its descriptor, on which it then calls epoll_ctl, read and
// close, all of which a timerfd understands. So a socket's descriptor is made
// one of the timerfd, before gnet sees it.
func (c *clock) enroll(client *gnet.Client, l *eventLoop) (err error) {
	c.fd, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("timerfd_create", err)
	}
	carrier, err := socket()
	if err != nil {
		return err
	}
	raw, err := carrier.SyscallConn()
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

// calibrate relates the two ways to read the monotonic clock: time.Time, which
// needs no system call, and the one that the timerfd understands. base is read
// second, so a timer may be late by the time between, and never early.
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

// set makes the timerfd fire at the time at, at once if that is past.
func (c *clock) set(at time.Duration) error {
	c.armed = at
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(c.base + at))}
	return os.NewSyscallError("timerfd_settime", unix.TimerfdSettime(c.fd, unix.TFD_TIMER_ABSTIME, &spec, nil))
}

// fire makes the timerfd fire at once, whatever it is set to. Any goroutine may
// call it.
func (c *clock) fire() {
	past := unix.ItimerSpec{Value: unix.Timespec{Nsec: 1}}
	_ = unix.TimerfdSettime(c.fd, unix.TFD_TIMER_ABSTIME, &past, nil) // can't fail: fd and value are good
}

// socket is one end of a socket pair, the other closed, as a *net.UnixConn.
func socket() (*net.UnixConn, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	_ = unix.Close(pair[1])
	file := os.NewFile(uintptr(pair[0]), "timer")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("a socket pair is a %T", conn), conn.Close())
	}
	return uc, nil
}

// rearm sets the timerfd if the nearest timer is due before what it is set to.
// It is never set later or stopped: an early wake finds nothing due and sets it
// anew, and a request's timeouts, nearly all stopped in time, cost no call.
func (l *eventLoop) rearm() {
	at, ok := l.timers.Next()
	if l.turns.again {
		at, ok = l.now, true
	}
	if !ok || l.clock.armed != 0 && l.clock.armed <= at {
		return
	}
	if err := l.clock.set(at); err != nil {
		l.eng.log.Error("event loop has no timer", "loop", l.index, "error", err)
	}
}

// timerFired runs the timers that are due and ends the turn, so that a timer
// armed meanwhile, even for now, waits for the next one.
func (l *eventLoop) timerFired() {
	l.enter()
	l.clock.armed = 0
	again := l.turns.again
	limit := l.timers.LastSeq()
	for t := l.timers.Pop(l.now, limit); t != nil; t = l.timers.Pop(l.now, limit) {
		l.run(t.Fire)
	}
	if again {
		l.endTurnWithPosts()
	} else {
		l.endTurn()
	}
	l.leave()
}
