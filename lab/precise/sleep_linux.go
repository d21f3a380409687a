package precise

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// timer is a timerfd. The finalizer of os.File closes it once the pool, or sleep, has dropped it.
type timer struct {
	file *os.File
	fd   int // of file, kept because File.Fd would make it blocking
	buf  [8]byte
}

// There are as many timers as goroutines asleep at a time, which the callers limit.
var timers sync.Pool

func sleep(d time.Duration) error {
	t, _ := timers.Get().(*timer)
	if t == nil {
		fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
		if err != nil {
			return err
		}
		t = &timer{file: os.NewFile(uintptr(fd), "timerfd"), fd: fd}
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	if err := unix.TimerfdSettime(t.fd, 0, &spec, nil); err != nil {
		return err
	}
	if _, err := t.file.Read(t.buf[:]); err != nil {
		return err
	}
	timers.Put(t)
	return nil
}
