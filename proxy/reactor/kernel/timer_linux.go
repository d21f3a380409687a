package kernel

import (
	"errors"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Timer makes a descriptor readable at a time. It is a timerfd.
type Timer struct{ fd int }

// NewTimer returns a Timer and its descriptor, as a connection.
//
// gnet accepts stream sockets only. But it only duplicates the descriptor of a net.Conn and
// then calls epoll_ctl, read and close on it, and a timerfd supports all three. So NewTimer
// replaces the descriptor of a socket by the timerfd before gnet sees it.
func NewTimer() (*Timer, net.Conn, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, nil, os.NewSyscallError("timerfd_create", err)
	}
	t := &Timer{fd}
	carrier, other, err := sockets()
	if err != nil {
		return nil, nil, errors.Join(err, t.Close())
	}
	raw, err := carrier.SyscallConn()
	if err = errors.Join(err, other.Close()); err == nil {
		var dup error
		err = raw.Control(func(carried uintptr) { dup = unix.Dup3(fd, int(carried), unix.O_CLOEXEC) })
		err = errors.Join(err, dup)
	}
	if err != nil {
		return nil, nil, errors.Join(err, carrier.Close(), t.Close())
	}
	return t, carrier, nil
}

// Monotonic returns the time of the clock that Set uses.
func Monotonic() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, os.NewSyscallError("clock_gettime", err)
	}
	return time.Duration(ts.Nano()), nil
}

// Set makes the descriptor readable at at, or at once if that is past.
func (t *Timer) Set(at time.Duration) error {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(at))}
	return os.NewSyscallError("timerfd_settime", unix.TimerfdSettime(t.fd, unix.TFD_TIMER_ABSTIME, &spec, nil))
}

// Fire makes the descriptor readable at once. It may be called from any goroutine.
func (t *Timer) Fire() {
	past := unix.ItimerSpec{Value: unix.Timespec{Nsec: 1}}
	_ = unix.TimerfdSettime(t.fd, unix.TFD_TIMER_ABSTIME, &past, nil) // can't fail: fd and value are valid
}

// Close closes the Timer, not its descriptor.
func (t *Timer) Close() error { return os.NewSyscallError("close", unix.Close(t.fd)) }
