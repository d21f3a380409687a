package precise

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// timer is a timerfd that the runtime's poller watches: a goroutine in Read wakes when it
// expires. The finalizer of os.File closes it once the pool has dropped it.
type timer struct {
	file *os.File
	fd   int // of file, kept because File.Fd would make it blocking
	buf  [8]byte
}

// The pool has no limit: there are as many timers as goroutines asleep at a time, which the
// callers limit.
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
			time.Sleep(d) // out of descriptors: a late wake-up is better than none
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
