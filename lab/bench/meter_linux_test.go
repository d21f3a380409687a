package bench

import (
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMeter(t *testing.T) {
	m := Meter{os.Getpid()}
	before, err := m.Usage()
	if err != nil {
		t.Fatal(err)
	}
	const least = 50 * time.Millisecond
	var used Usage
	for used.CPU < least || used.User+used.System == 0 {
		after, err := m.Usage() // reading /proc uses CPU too
		if err != nil {
			t.Fatal(err)
		}
		used = after.Since(before)
	}
	if used.User < 0 || used.System < 0 || used.Last != used.CPU {
		t.Errorf("%+v", used)
	}
	if used.RSS < 1<<20 || used.Own < 1<<18 || used.Own >= used.RSS {
		t.Errorf("%d bytes, %d of them no file's", used.RSS, used.Own)
	}
}

func TestUsageFigures(t *testing.T) {
	u := Usage{
		CPU: 2 * time.Millisecond, Last: time.Millisecond, Period: 8 * time.Millisecond,
		User: 3, System: 9, RSS: 5 << 20, LastRSS: 2 << 20,
	}
	if f := u.figures(100, 2); !maps.Equal(f, Figures{
		CPU: 20, User: 5, System: 15, First: 10, RSS: 5,
		Cores: 0.25, FirstCores: 0.125, SecondCores: 0.125, FirstRSS: 2, SecondRSS: 3,
	}) {
		t.Errorf("%v", f)
	}
	u.User, u.System = 0, 0 // no tick
	if f := u.figures(100, 1); !maps.Equal(f, Figures{CPU: 20, RSS: 5}) {
		t.Errorf("%v", f)
	}
}

// TestMeterHasDescendants checks that a worker counts with the process that started it.
func TestMeterHasDescendants(t *testing.T) {
	worker := exec.Command("sleep", "600")
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	defer worker.Wait()
	defer worker.Process.Kill()
	if all, err := family(os.Getpid()); err != nil || !slices.Contains(all, worker.Process.Pid) {
		t.Errorf("%v lacks %d, %v", all, worker.Process.Pid, err)
	}
}

// TestMeterEndedThreads checks that the run time of an ended thread still counts.
func TestMeterEndedThreads(t *testing.T) {
	m := Meter{os.Getpid()}
	before, err := m.Usage()
	if err != nil {
		t.Fatal(err)
	}
	const least = 100 * time.Millisecond
	ended := make(chan int)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for began := threadTime(t); threadTime(t)-began < least; {
		}
		ended <- unix.Gettid()
	}()
	thread := <-ended
	for deadline := time.Now().Add(20 * time.Second); thread != os.Getpid(); runtime.Gosched() {
		if _, err := os.Stat(proc(os.Getpid(), "task/"+strconv.Itoa(thread))); err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the thread did not end")
		}
	}
	after, err := m.Usage()
	if used := after.Since(before).CPU; err != nil || used < least {
		t.Errorf("%v, want %v at least; %v", used, least, err)
	}
}

func threadTime(t *testing.T) time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		t.Error(err)
	}
	return time.Duration(now.Nano())
}

func TestMeterEndedProcess(t *testing.T) {
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	m := Meter{ended.Process.Pid}
	if _, err := m.Usage(); err == nil {
		t.Error("usage: no error")
	}
}
