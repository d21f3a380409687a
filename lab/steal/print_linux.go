package steal

import (
	"context"
	"encoding/json"
	"errors"
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

// Print is the child of a Watcher: once it watches all processors it writes a first line to
// out, then each Stop as a line of JSON, until in ends. It probes each processor once a period.
//
// It takes real-time priority, which needs CAP_SYS_NICE. The process must do nothing else,
// and must have a GOMAXPROCS above the number of processors.
func Print(ctx context.Context, period time.Duration, in io.Reader, out io.Writer) error {
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpus); err != nil {
		return os.NewSyscallError("sched_getaffinity", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel(nil)
	}()
	var mu sync.Mutex
	lines := json.NewEncoder(out)
	write := func(v any) {
		mu.Lock()
		defer mu.Unlock()
		if err := lines.Encode(v); err != nil {
			cancel(err)
		}
	}
	var seized, ended sync.WaitGroup
	seized.Add(cpus.Count())
	begin := make(chan struct{}) // closed once the first line is written
	for cpu := range maxCPU {
		if !cpus.IsSet(cpu) {
			continue
		}
		ended.Go(func() {
			runtime.LockOSThread() // never unlocked: the thread ends with its priority
			if err := seize(cpu); err != nil {
				cancel(fmt.Errorf("steal: processor %d: %w", cpu, err))
			}
			seized.Done()
			<-begin
			if err := watch(ctx, cpu, period, write); err != nil {
				cancel(err)
			}
		})
	}
	if seized.Wait(); ctx.Err() == nil {
		write(greeting{Watching: true})
	}
	close(begin)
	ended.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// watch sleeps again and again on one processor. A late wake-up is a Stop.
func watch(ctx context.Context, cpu int, period time.Duration, write func(any)) error {
	due := time.Now()
	for ctx.Err() == nil {
		due = due.Add(period)
		for left := time.Until(due); left > 0; left = time.Until(due) { // a signal ends a sleep early
			if err := nap(left); err != nil {
				return err
			}
		}
		if now := time.Now(); now.Sub(due) >= Least {
			write(Stop{CPU: cpu, From: due, To: now})
			due = now
		}
	}
	return nil
}

// nap sleeps for d, or until a signal. It bypasses Go's scheduler: to move this thread's
// work elsewhere and back, a thousand times a second, would disturb the measurement.
func nap(d time.Duration) error {
	ts := unix.NsecToTimespec(int64(d))
	_, _, e := unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
	if e != 0 && e != unix.EINTR {
		return os.NewSyscallError("clock_nanosleep", e)
	}
	return nil
}

// seize binds the thread to a processor and gives it priority over all others there.
func seize(cpu int) error {
	var own unix.CPUSet
	own.Set(cpu)
	if err := unix.SchedSetaffinity(0, &own); err != nil {
		return os.NewSyscallError("sched_setaffinity", err)
	}
	return os.NewSyscallError("sched_setattr", unix.SchedSetAttr(0, &unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: 1}, 0))
}
