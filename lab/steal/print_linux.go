package steal

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxCPU bounds the numbers of processors; a unix.CPUSet holds as many.
const maxCPU = 1024

// Print is the child of Watch: once it watches all processors it writes a first line to out, then
// each Stop as a line of JSON, until in ends. It takes real-time priority, which needs
// CAP_SYS_NICE. The process must do nothing else, and GOMAXPROCS must exceed its processors.
func Print(ctx context.Context, period time.Duration, in io.Reader, out io.Writer) error {
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpus); err != nil {
		return os.NewSyscallError("sched_getaffinity", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	seized, stops := make(chan error), make(chan Stop, maxCPU)
	var watching sync.WaitGroup
	for cpu := range maxCPU {
		if !cpus.IsSet(cpu) {
			continue
		}
		watching.Go(func() {
			runtime.LockOSThread() // never unlocked: the thread ends with its priority
			seized <- seize(cpu)
			watch(ctx, cpu, period, stops)
		})
	}
	var err error
	for range cpus.Count() {
		err = cmp.Or(err, <-seized)
	}
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	lines := json.NewEncoder(out)
	if err := lines.Encode(greeting{Watching: true}); err != nil {
		return err
	}
	go func() {
		watching.Wait()
		close(stops)
	}()
	for s := range stops {
		if err := lines.Encode(s); err != nil {
			return err
		}
	}
	return nil
}

// watch sleeps again and again on one processor. A late wake-up is a Stop.
func watch(ctx context.Context, cpu int, period time.Duration, stops chan<- Stop) {
	due := time.Now()
	for ctx.Err() == nil {
		due = due.Add(period)
		for left := time.Until(due); left > 0; left = time.Until(due) { // a signal ends a sleep early
			nap(left)
		}
		if now := time.Now(); now.Sub(due) >= Least {
			stops <- Stop{CPU: cpu, From: due, To: now}
			due = now
		}
	}
}

// nap sleeps for d, or until a signal. It bypasses Go's scheduler: to move this thread's
// work elsewhere and back, a thousand times a second, would disturb the measurement.
func nap(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_, _, e := unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
	if e != 0 && e != unix.EINTR { // watch would spin, with priority over all other threads
		panic(os.NewSyscallError("clock_nanosleep", e))
	}
}

// seize binds the thread to a processor and gives it priority over all others there.
func seize(cpu int) error {
	var own unix.CPUSet
	own.Set(cpu)
	err := os.NewSyscallError("sched_setaffinity", unix.SchedSetaffinity(0, &own))
	if err == nil {
		err = os.NewSyscallError("sched_setattr", unix.SchedSetAttr(0, &unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: 1}, 0))
	}
	if err != nil {
		return fmt.Errorf("steal: processor %d: %w", cpu, err)
	}
	return nil
}
