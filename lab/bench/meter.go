package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Meter measures processes, given by their ids, and all their descendants: nginx's worker is one.
type Meter []int

// Usage is what processes have used since their start.
type Usage struct {
	At     time.Time     // of the reading
	Period time.Duration // between two readings, in the result of Since

	// CPU is the scheduler's run time of all threads, also of ended ones. Last is the part of
	// the last process of the Meter, with its descendants.
	CPU, Last time.Duration

	// User and System are the kernel's samples of where they ran, in ticks of 10 ms. They
	// only give the share of each over some seconds.
	User, System int64

	RSS     int64 // resident memory in bytes, at the moment; shared pages count for each process
	LastRSS int64 // the part of the last process of the Meter, with its descendants
	Own     int64 // the part of RSS without pages of files
}

// Since returns the usage after before, with the memory of now.
func (u Usage) Since(before Usage) Usage {
	u.CPU, u.Last = u.CPU-before.CPU, u.Last-before.Last
	u.User, u.System = u.User-before.User, u.System-before.System
	u.Period = u.At.Sub(before.At)
	return u
}

func (u Usage) figures(requests int64, processes int) Figures {
	cpu := microseconds(u.CPU) / float64(requests)
	f := Figures{CPU: cpu, RSS: mebibytes(u.RSS)}
	if processes > 1 {
		f[First] = microseconds(u.Last) / float64(requests)
	}
	if processes == 2 {
		f[Cores] = u.CPU.Seconds() / u.Period.Seconds()
		f[FirstCores] = u.Last.Seconds() / u.Period.Seconds()
		f[SecondCores] = f[Cores] - f[FirstCores]
		f[FirstRSS], f[SecondRSS] = mebibytes(u.LastRSS), mebibytes(u.RSS-u.LastRSS)
	}
	if ticks := u.User + u.System; ticks > 0 {
		f[User], f[System] = cpu*float64(u.User)/float64(ticks), cpu*float64(u.System)/float64(ticks)
	}
	return f
}

// Usage reads the counts of all processes.
func (m Meter) Usage() (Usage, error) {
	u := Usage{At: time.Now()}
	for _, pid := range m {
		all, err := family(pid)
		if err != nil {
			return u, err
		}
		before := u
		for _, pid := range all {
			if err := u.add(pid); err != nil {
				return u, fmt.Errorf("usage of process %d: %w", pid, err)
			}
		}
		u.Last, u.LastRSS = u.CPU-before.CPU, u.RSS-before.RSS
	}
	return u, nil
}

func (m Meter) after(ctx context.Context, d time.Duration) (u Usage, err error) {
	if err = sleep(ctx, d); err == nil {
		u, err = m.Usage()
	}
	return u, err
}

func proc(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }

// family returns a process and its descendants. A kernel without lists of children is an
// error: a proxy's workers would cost nothing.
func family(pid int) ([]int, error) {
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		lists, _ := filepath.Glob(proc(all[i], "task/*/children"))
		if len(lists) == 0 {
			return nil, fmt.Errorf("%s: the process has ended, or the kernel has no list of children", proc(all[i], ""))
		}
		for _, list := range lists {
			b, _ := os.ReadFile(list) // an ended thread has no list
			for _, field := range strings.Fields(string(b)) {
				if child, err := strconv.Atoi(field); err == nil {
					all = append(all, child)
				}
			}
		}
	}
	return all, nil
}

// add adds one process. Its run time is that of its CPU-time clock (clock_getcpuclockid(3)).
func (u *Usage) add(pid int) error {
	const scheduled = 2 // the scheduler's count, of all threads: CPUCLOCK_SCHED
	var run unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &run); err != nil {
		return err
	}
	stat, err := os.ReadFile(proc(pid, "stat"))
	if err != nil {
		return err
	}
	// Fields are numbered as in proc(5). The third one comes after the name, which may contain
	// spaces and ends with the last parenthesis.
	const third, userTicks, systemTicks = 3, 14, 15
	var other string
	var user, system, size, pages, ofFiles int64
	fields := slices.Repeat([]any{&other}, systemTicks-third+1)
	fields[userTicks-third], fields[systemTicks-third] = &user, &system
	if _, err := fmt.Sscan(string(stat[bytes.LastIndexByte(stat, ')')+1:]), fields...); err != nil {
		return err
	}
	statm, err := os.ReadFile(proc(pid, "statm")) // its resident pages are exact, those of stat are not
	if err != nil {
		return err
	}
	if _, err := fmt.Sscan(string(statm), &size, &pages, &ofFiles); err != nil {
		return err
	}
	u.CPU, u.User, u.System = u.CPU+time.Duration(run.Nano()), u.User+user, u.System+system
	u.RSS += pages * int64(os.Getpagesize())
	u.Own += (pages - ofFiles) * int64(os.Getpagesize())
	return nil
}
