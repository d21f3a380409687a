// Package epoll has a kernel.Poller made of epoll alone. It wakes one loop for a connection, takes timeouts in nanoseconds,
// and makes one system call for a turn.
package epoll

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// Poller is a kernel.Poller.
type Poller struct {
	fd, eventfd int
	until       unix.Timespec // how long rest waits
	ready       [kernel.MaxReady]unix.EpollEvent
}

// errCoarse is the error of a system whose timeouts are whole milliseconds.
var errCoarse = fmt.Errorf("%w: it needs epoll_pwait2(2) of Linux 5.11, which some sandboxes lack, and a processor of 64 bits",
	errors.ErrUnsupported)

// Open returns a Poller that watches nothing. Its owner must Close it. The error is an errors.ErrUnsupported if the
// system lacks epoll_pwait2(2).
func Open() (*Poller, error) {
	p := &Poller{eventfd: -1}
	var err error
	if p.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if p.eventfd, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		return nil, errors.Join(os.NewSyscallError("eventfd", err), p.Close())
	}
	// By edge, each Wake is an event, and nobody needs to read the eventfd.
	if err := p.control(unix.EPOLL_CTL_ADD, p.eventfd, unix.EPOLLIN|unix.EPOLLET); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	if _, errno := p.waitFor(0); errno != 0 {
		return nil, errors.Join(errCoarse, p.Close())
	}
	return p, nil
}

// Close implements kernel.Poller.
func (p *Poller) Close() error {
	err := os.NewSyscallError("close", unix.Close(p.fd))
	if p.eventfd >= 0 {
		err = errors.Join(err, os.NewSyscallError("close", unix.Close(p.eventfd)))
	}
	return err
}

// Add implements kernel.Poller. In sandboxes without EPOLLEXCLUSIVE all loops are told of a connection at a Shared socket.
func (p *Poller) Add(fd int, e kernel.Events) error {
	err := p.control(unix.EPOLL_CTL_ADD, fd, flags(e))
	if e&kernel.Shared != 0 && errors.Is(err, unix.EINVAL) {
		err = p.control(unix.EPOLL_CTL_ADD, fd, flags(kernel.Input))
	}
	return err
}

// Change implements kernel.Poller.
func (p *Poller) Change(fd int, e kernel.Events) error {
	return p.control(unix.EPOLL_CTL_MOD, fd, flags(e))
}

// Remove implements kernel.Poller.
func (p *Poller) Remove(fd int) error { return p.control(unix.EPOLL_CTL_DEL, fd, 0) }

func flags(e kernel.Events) uint32 {
	if e&kernel.Shared != 0 {
		return unix.EPOLLIN | unix.EPOLLET | unix.EPOLLEXCLUSIVE
	}
	f := uint32(unix.EPOLLET)
	if e&kernel.Input != 0 {
		f |= unix.EPOLLIN | unix.EPOLLPRI | unix.EPOLLRDHUP
	}
	if e&kernel.Output != 0 {
		f |= unix.EPOLLOUT
	}
	return f
}

func (p *Poller) control(op, fd int, flags uint32) error {
	e := unix.EpollEvent{Events: flags, Fd: int32(fd)}
	_, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(p.fd), uintptr(op), uintptr(fd), uintptr(unsafe.Pointer(&e)), 0, 0)
	if errno != 0 {
		return os.NewSyscallError("epoll_ctl", errno)
	}
	return nil
}

// Run implements kernel.Poller.
func (p *Poller) Run(t kernel.Turns) {
	for w := (kernel.Wait{}); !w.Stop; {
		n := p.wait(w)
		t.BeginTurn()
		for i := range p.ready[:n] {
			if fd := int(p.ready[i].Fd); fd != p.eventfd {
				t.OnEvents(fd, kernel.EpollEvents(p.ready[i].Events))
			}
		}
		w = t.EndTurn()
	}
}

// wait waits as w says, and returns the number of events. It may return 0 early.
func (p *Poller) wait(w kernel.Wait) int {
	var n int
	var errno syscall.Errno
	switch {
	case w.Limit == 0:
		n, errno = p.poll()
	case w.Rest:
		n, errno = p.rest(w.Limit)
	default:
		n, errno = p.waitFor(w.Limit)
	}
	switch errno {
	case 0:
		return n
	case unix.EINTR:
		return 0
	}
	panic("epoll: epoll_pwait: " + errno.Error())
}

// rest waits, and the Go runtime gets the P at once. Otherwise the runtime takes the P after 10 ms, and its monitor
// wakes some sixty times until then.
func (p *Poller) rest(limit time.Duration) (int, syscall.Errno) {
	var until *unix.Timespec
	if limit > 0 {
		p.until = unix.NsecToTimespec(int64(limit))
		until = &p.until
	}
	n, errno := epollBlocked(uintptr(p.fd), uintptr(unsafe.Pointer(&p.ready)), uintptr(unsafe.Pointer(until)))
	runtime.KeepAlive(p)
	return int(n), errno
}

// poll returns the events that there are. The Go runtime is not told of a call that doesn't wait.
func (p *Poller) poll() (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&p.ready)), kernel.MaxReady, 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

func (p *Poller) waitFor(limit time.Duration) (int, syscall.Errno) {
	if unsafe.Sizeof(unix.Timespec{}) != 16 { // epoll_pwait2 takes two numbers of 64 bits
		return 0, unix.ENOSYS
	}
	var until *unix.Timespec
	if limit >= 0 {
		ts := unix.NsecToTimespec(int64(limit))
		until = &ts
	}
	n, _, errno := syscall.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(p.fd), uintptr(unsafe.Pointer(&p.ready)), kernel.MaxReady,
		uintptr(unsafe.Pointer(until)), 0, 0)
	return int(n), errno
}

// Wake implements kernel.Poller.
func (p *Poller) Wake() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _, _ = syscall.RawSyscall(unix.SYS_WRITE, uintptr(p.eventfd), uintptr(unsafe.Pointer(&one)), uintptr(len(one)))
}
