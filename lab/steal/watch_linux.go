package steal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxCPU bounds the numbers of processors: those that a unix.CPUSet can hold.
const maxCPU = 1024

// Watch calls begun once it watches all processors, and from then on found for each
// Stop of any of them until ctx ends, never both or for two at once. It asks each of them once a period.
// It takes real-time priority: without CAP_SYS_NICE it fails.
//
// A process that watches does nothing else, and has a GOMAXPROCS above the number
// of processors, or its own goroutines keep each other waiting.
func Watch(ctx context.Context, period time.Duration, begun func(), found func(Stop)) error {
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpus); err != nil {
		return os.NewSyscallError("sched_getaffinity", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var watchers sync.WaitGroup
	all := muster{begun: begun, found: found, left: cpus.Count()}
	for cpu := range maxCPU {
		if !cpus.IsSet(cpu) {
			continue
		}
		watchers.Go(func() { cancel(watch(ctx, cpu, period, &all)) })
	}
	watchers.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// watch sleeps and sees whether it wakes in time, on one processor.
func watch(ctx context.Context, cpu int, period time.Duration, all *muster) error {
	runtime.LockOSThread() // and never unlocked: the thread ends with its priority
	if err := seize(cpu); err != nil {
		return fmt.Errorf("steal: processor %d: %w", cpu, err)
	}
	all.arrive()
	due := time.Now()
	for ctx.Err() == nil {
		due = due.Add(period)
		for left := time.Until(due); left > 0; left = time.Until(due) { // a signal ends a sleep early
			if err := nap(left); err != nil {
				return err
			}
		}
		if now := time.Now(); now.Sub(due) >= Least {
			all.tell(Stop{CPU: cpu, From: due, To: now})
			due = now
		}
	}
	return nil
}

// nap sleeps for d, or until a signal. Go's scheduler is not told: to take this
// thread's work elsewhere and back, a thousand times a second, would disturb what is
// measured.
func nap(d time.Duration) error {
	ts := unix.NsecToTimespec(int64(d))
	_, _, e := unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
	if e != 0 && e != unix.EINTR {
		return os.NewSyscallError("clock_nanosleep", e)
	}
	return nil
}

// seize makes the thread one that its processor lets run before all others.
func seize(cpu int) error {
	var own unix.CPUSet
	own.Set(cpu)
	if err := unix.SchedSetaffinity(0, &own); err != nil {
		return os.NewSyscallError("sched_setaffinity", err)
	}
	return os.NewSyscallError("sched_setattr", unix.SchedSetAttr(0, &unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: 1}, 0))
}
