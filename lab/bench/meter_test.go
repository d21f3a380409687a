package bench

import (
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
	if share, ok := used.UserShare(); !ok || share < 0 || share > 1 {
		t.Errorf("a share of %v, %v", share, ok)
	}
	if rss, err := m.RSS(); err != nil || rss < 1<<20 {
		t.Errorf("%d bytes, %v", rss, err)
	}
}

func TestUserShare(t *testing.T) {
	if share, ok := (Usage{User: 3, System: 9}).UserShare(); !ok || share != 0.25 {
		t.Errorf("%v, %v", share, ok)
	}
	if _, ok := (Usage{CPU: time.Millisecond}).UserShare(); ok {
		t.Error("a share without a tick")
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
	if all, err := (Meter{os.Getpid()}).all(); err != nil || !slices.Contains(all, worker.Process.Pid) {
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
	if _, err := m.RSS(); err == nil {
		t.Error("memory: no error")
	}
}
