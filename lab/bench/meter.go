package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Meter measures processes, given by their ids, and all their descendants: nginx's
// worker is a child. It reads /proc of Linux.
type Meter []int

// Usage is what processes have used since their start.
type Usage struct {
	// CPU is the scheduler's run time of all threads, also of ended ones.
	CPU time.Duration

	// User and System are the kernel's samples of where they ran, in ticks of 10 ms. They
	// only give the share of each over some seconds.
	User, System int64
}

// Since returns the usage after before.
func (u Usage) Since(before Usage) Usage {
	return Usage{CPU: u.CPU - before.CPU, User: u.User - before.User, System: u.System - before.System}
}

// UserShare is the share of the time outside the kernel. ok is false without a tick.
func (u Usage) UserShare() (share float64, ok bool) {
	ticks := u.User + u.System
	if ticks <= 0 {
		return 0, false
	}
	return float64(u.User) / float64(ticks), true
}

// Usage reads the counts of all processes.
func (m Meter) Usage() (u Usage, err error) {
	all, err := m.all()
	if err != nil {
		return u, err
	}
	for _, pid := range all {
		run, err := runTime(pid)
		if err != nil {
			return u, err
		}
		user, system, err := ticks(pid)
		if err != nil {
			return u, err
		}
		u.CPU, u.User, u.System = u.CPU+run, u.User+user, u.System+system
	}
	return u, nil
}

// RSS is the resident memory in bytes. Shared pages count for each process.
func (m Meter) RSS() (bytes int64, err error) {
	all, err := m.all()
	if err != nil {
		return 0, err
	}
	for _, pid := range all {
		status, err := os.ReadFile(proc(pid, "status"))
		if err != nil {
			return 0, fmt.Errorf("memory: %w", err)
		}
		_, after, _ := strings.Cut(string(status), "\nVmRSS:")
		var kib int64
		if _, err := fmt.Sscan(after, &kib); err != nil {
			return 0, fmt.Errorf("%s has no VmRSS", proc(pid, "status"))
		}
		bytes += kib << 10
	}
	return bytes, nil
}

func proc(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }

// all returns the processes and their descendants. A kernel without lists of children is an
// error: a proxy's workers would cost nothing.
func (m Meter) all() ([]int, error) {
	all := append([]int(nil), m...)
	for i := 0; i < len(all); i++ {
		lists, _ := filepath.Glob(proc(all[i], "task/*/children"))
		if len(lists) == 0 {
			return nil, fmt.Errorf("%s: the process has ended, or the kernel has no list of children", proc(all[i], ""))
		}
		for _, list := range lists {
			b, _ := os.ReadFile(list) // an ended thread has no list
			for _, field := range strings.Fields(string(b)) {
				if pid, err := strconv.Atoi(field); err == nil {
					all = append(all, pid)
				}
			}
		}
	}
	return all, nil
}

// runTime is the run time of a process, by its CPU-time clock (clock_getcpuclockid(3)).
func runTime(pid int) (time.Duration, error) {
	const scheduled = 2 // the scheduler's count, of all threads: CPUCLOCK_SCHED
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &t); err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// Fields of /proc/PID/stat after the name, which may contain spaces (proc(5)).
const (
	statUser   = 14 - 3
	statSystem = 15 - 3
)

// ticks returns the user and system time of a process, in ticks.
func ticks(pid int) (user, system int64, err error) {
	b, err := os.ReadFile(proc(pid, "stat"))
	if err != nil {
		return 0, 0, fmt.Errorf("CPU time: %w", err)
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) <= statSystem {
		return 0, 0, fmt.Errorf("%s is short", proc(pid, "stat"))
	}
	user, err = strconv.ParseInt(string(fields[statUser]), 10, 64)
	if err == nil {
		system, err = strconv.ParseInt(string(fields[statSystem]), 10, 64)
	}
	return user, system, err
}
