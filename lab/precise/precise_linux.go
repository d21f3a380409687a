package precise

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A timer is a timerfd that the runtime's poller watches: a goroutine blocked in
// Read is woken when it expires. It is closed by its finalizer (os.File's) when
// the pool lets go of it.
type timer struct {
	file *os.File
	fd   int // of file, kept because File.Fd would make it blocking
	buf  [8]byte
}

// The pool bounds nothing by itself: there are as many timers as there are
// goroutines asleep at once, which the callers bound.
var timers sync.Pool

func newTimer() (*timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return &timer{file: os.NewFile(uintptr(fd), "timerfd"), fd: fd}, nil
}

func sleep(d time.Duration) {
	t, _ := timers.Get().(*timer)
	if t == nil {
		var err error
		if t, err = newTimer(); err != nil {
			time.Sleep(d) // out of descriptors: late is better than never
			return
		}
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	if err := unix.TimerfdSettime(t.fd, 0, &spec, nil); err != nil {
		t.file.Close()
		time.Sleep(d)
		return
	}
	if _, err := t.file.Read(t.buf[:]); err != nil {
		t.file.Close()
		time.Sleep(d)
		return
	}
	timers.Put(t)
}
