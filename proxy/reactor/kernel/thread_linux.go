package kernel

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ThreadTime returns the current thread, and the processor time that it has taken so far. The caller
// may go on on another thread. A thread of 0 means that the time is unknown.
func ThreadTime() (thread int, used time.Duration) {
	var now unix.Timespec
	id, _, _ := syscall.RawSyscall(unix.SYS_GETTID, 0, 0, 0)
	_, _, errno := syscall.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_THREAD_CPUTIME_ID, uintptr(unsafe.Pointer(&now)), 0)
	if errno != 0 {
		return 0, 0
	}
	return int(id), time.Duration(now.Nano())
}
