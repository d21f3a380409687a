package epoll

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// TestWait: each kind of wait ends after its limit and not before, or by Wake, even if that came first.
func TestWait(t *testing.T) {
	for _, c := range []struct {
		name string
		rest bool
	}{{"short", false}, {"rest", true}} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Open()
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			for _, limit := range []time.Duration{1, 300 * time.Microsecond, 3 * time.Millisecond} {
				begin := time.Now()
				n := p.wait(kernel.Wait{Limit: limit, Rest: c.rest})
				if took := time.Since(begin); n > 0 || took < limit {
					t.Errorf("%d events after %v, want none after %v", n, took, limit)
				}
			}
			if n := p.wait(kernel.Wait{Rest: c.rest}); n != 0 {
				t.Errorf("%d events, want none", n)
			}
			unlimited := kernel.Wait{Limit: -1, Rest: c.rest}
			p.Wake()
			p.wait(unlimited)
			ended := make(chan struct{})
			go func() { p.wait(unlimited); close(ended) }()
			p.Wake()
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Fatal("Wake does not end the wait")
			}
		})
	}
}

// TestNoWait: the thread does not sleep if the Poller may not wait.
func TestNoWait(t *testing.T) {
	p, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const calls = 200
	var before, after unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &before); err != nil {
		t.Fatal(err)
	}
	for range calls {
		p.wait(kernel.Wait{})
	}
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &after); err != nil {
		t.Fatal(err)
	}
	if slept := after.Nvcsw - before.Nvcsw; slept > calls/2 {
		t.Errorf("slept %d times in %d calls", slept, calls)
	}
}

// TestRestAlloc: a rest allocates nothing.
func TestRestAlloc(t *testing.T) {
	p, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if n := testing.AllocsPerRun(100, func() { p.wait(kernel.Wait{Limit: time.Microsecond, Rest: true}) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestInterrupted: a signal ends a wait, without an event.
func TestInterrupted(t *testing.T) {
	for _, rest := range []bool{false, true} {
		p, err := Open()
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		thread, events := make(chan int), make(chan int)
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			thread <- unix.Gettid()
			events <- p.wait(kernel.Wait{Limit: -1, Rest: rest})
		}()
		tid, deadline := <-thread, time.After(time.Minute)
		for ended := false; !ended; {
			if err := unix.Tgkill(os.Getpid(), tid, unix.SIGURG); err != nil {
				t.Fatal(err)
			}
			select {
			case n := <-events:
				if ended = true; n != 0 {
					t.Errorf("%d events", n)
				}
			case <-deadline:
				t.Fatal("the wait has not ended")
			default:
			}
		}
	}
}

// TestInherited: a process that this one starts gets no descriptor of a Poller.
func TestInherited(t *testing.T) {
	p, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, fd := range []int{p.fd, p.eventfd} {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d has the flags %x, %v", fd, flags, err)
		}
	}
}

// TestClose: a Poller leaves no descriptor.
func TestClose(t *testing.T) {
	p, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	for _, fd := range []int{p.fd, p.eventfd} {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != unix.EBADF {
			t.Errorf("descriptor %d is open: %v", fd, err)
		}
	}
}

// watched returns what p watches fd for, as the kernel says it.
func watched(t *testing.T, p *Poller, fd int) uint64 {
	t.Helper()
	info := must.ReadFile(t, fmt.Sprintf("/proc/self/fdinfo/%d", p.fd))
	found := regexp.MustCompile(fmt.Sprintf(`tfd: *%d events: *([0-9a-f]+)`, fd)).FindSubmatch(info)
	if found == nil {
		t.Fatalf("no descriptor %d in %q", fd, info)
	}
	events, err := strconv.ParseUint(string(found[1]), 16, 32)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// TestFlags: the kernel watches for what was asked for, and for nothing else.
func TestFlags(t *testing.T) {
	p, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ends[0])
	defer unix.Close(ends[1])
	if err := p.Add(ends[0], kernel.Output); err != nil {
		t.Fatal(err)
	}
	const input, all = unix.EPOLLIN | unix.EPOLLPRI | unix.EPOLLRDHUP, unix.EPOLLIN | unix.EPOLLPRI | unix.EPOLLRDHUP | unix.EPOLLOUT | unix.EPOLLET | unix.EPOLLEXCLUSIVE
	for _, c := range []struct {
		e    kernel.Events
		want uint64
	}{
		{kernel.Output, unix.EPOLLET | unix.EPOLLOUT}, {kernel.Input, unix.EPOLLET | input},
		{kernel.Input | kernel.Output, unix.EPOLLET | input | unix.EPOLLOUT}, {0, unix.EPOLLET},
	} {
		if err := p.Change(ends[0], c.e); err != nil {
			t.Fatal(err)
		}
		if got := watched(t, p, ends[0]) & all; got != c.want {
			t.Errorf("%b: events %x, want %x", c.e, got, c.want)
		}
	}
}

// TestSharedByAll: without EPOLLEXCLUSIVE, which the kernel refuses for an epoll instance, a Poller watches for input.
func TestSharedByAll(t *testing.T) {
	p, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	other, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := p.Add(other.fd, kernel.Input|kernel.Shared); err != nil {
		t.Fatal(err)
	}
	if events, want := watched(t, p, other.fd), uint64(flags(kernel.Input)); events&want != want || events&unix.EPOLLEXCLUSIVE != 0 {
		t.Errorf("events %x, want those of %x", events, want)
	}
}

// TestShared: the kernel wakes one of the Pollers that watch a listening socket.
func TestShared(t *testing.T) {
	p, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ln := must.Listen(t)
	fd, err := kernel.Duplicate(ln.(syscall.Conn))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := p.Add(fd, kernel.Input|kernel.Shared); err != nil {
		t.Fatal(err)
	}
	if events, want := watched(t, p, fd), uint64(unix.EPOLLIN|unix.EPOLLET|unix.EPOLLEXCLUSIVE); events&want != want {
		t.Errorf("events %x, want those of %x", events, want)
	}
}
