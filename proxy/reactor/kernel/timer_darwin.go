package kernel

import (
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Timer makes a descriptor readable at a time. It is a timer of Go, which writes to a socket.
type Timer struct {
	mu    sync.Mutex
	timer *time.Timer
	to    *net.UnixConn
	raw   syscall.RawConn // of to
}

// NewTimer returns a Timer and its descriptor, as a connection.
func NewTimer() (*Timer, net.Conn, error) {
	carrier, to, err := sockets()
	if err != nil {
		return nil, nil, err
	}
	raw, err := to.SyscallConn()
	return &Timer{to: to, raw: raw}, carrier, err
}

// Monotonic returns the time of the clock that Set uses. Like that of Go it stands still while
// the machine sleeps.
func Monotonic() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_UPTIME_RAW, &ts); err != nil {
		return 0, os.NewSyscallError("clock_gettime", err)
	}
	return time.Duration(ts.Nano()), nil
}

// Set makes the descriptor readable at at, or at once if that is past.
func (t *Timer) Set(at time.Duration) error {
	now, err := Monotonic()
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.timer.Stop()
	}
	t.timer = time.AfterFunc(at-now, t.Fire)
	return nil
}

// Fire makes the descriptor readable at once. It may be called from any goroutine. A socket that
// takes no more bytes is readable already.
func (t *Timer) Fire() {
	_ = t.raw.Write(func(fd uintptr) bool {
		_, _ = unix.Write(int(fd), []byte{0})
		return true
	})
}

// Close closes the Timer, not its descriptor.
func (t *Timer) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.timer.Stop()
	}
	return t.to.Close()
}
