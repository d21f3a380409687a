package kernel

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Poller waits until descriptors are ready, by epoll. It reports a descriptor once when it becomes
// ready, or more to it (edge-triggered): who leaves input must call Change. Only one goroutine may use it,
// but for Wake.
type Poller struct {
	fd, eventfd int
	coarse      bool          // the kernel waits for whole milliseconds only
	until       unix.Timespec // how long Rest waits
	ready       [MaxReady]unix.EpollEvent
}

// NewPoller returns a Poller that watches nothing. Its owner must Close it.
func NewPoller() (*Poller, error) {
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
	// Before Linux 5.11, and in some sandboxes, there is no epoll_pwait2(2). It takes two numbers of
	// 64 bits.
	if p.coarse = unsafe.Sizeof(unix.Timespec{}) != 16; !p.coarse {
		_, errno := p.wait(0)
		p.coarse = errno != 0
	}
	return p, nil
}

// Close closes the Poller, but no descriptor that it watches.
func (p *Poller) Close() error {
	err := os.NewSyscallError("close", unix.Close(p.fd))
	if p.eventfd >= 0 {
		err = errors.Join(err, os.NewSyscallError("close", unix.Close(p.eventfd)))
	}
	return err
}

// Add watches fd for e. A close of the last descriptor of the same socket ends that.
func (p *Poller) Add(fd int, e Events) error { return p.control(unix.EPOLL_CTL_ADD, fd, flags(e)) }

// AddShared watches the listening socket fd, which other Pollers watch, too. One of them is told of a
// connection, or all, if the kernel can't do that. They are told for as long as there is one.
func (p *Poller) AddShared(fd int) error {
	err := p.control(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN|unix.EPOLLEXCLUSIVE)
	if errors.Is(err, unix.EINVAL) {
		err = p.control(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN)
	}
	return err
}

// Change watches fd for e from now on, and reports what it is ready for.
func (p *Poller) Change(fd int, e Events) error { return p.control(unix.EPOLL_CTL_MOD, fd, flags(e)) }

// Remove ends watching fd.
func (p *Poller) Remove(fd int) error { return p.control(unix.EPOLL_CTL_DEL, fd, 0) }

func flags(e Events) uint32 {
	f := uint32(unix.EPOLLET)
	if e&Input != 0 {
		f |= unix.EPOLLIN | unix.EPOLLPRI | unix.EPOLLRDHUP
	}
	if e&Output != 0 {
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

// Wait waits until a descriptor is ready or Wake is called, at most for limit; a negative limit is
// none. It returns the number of events, which Ready returns, and may return 0 early.
func (p *Poller) Wait(limit time.Duration) int {
	n, errno := 0, syscall.Errno(0)
	switch {
	case limit == 0:
		n, errno = p.poll()
	case p.coarse:
		n, errno = p.waitCoarsely(limit)
	default:
		n, errno = p.wait(limit)
	}
	return woken(n, errno)
}

// Rest is Wait, if it will take longer than 10 ms. The Go runtime gets the P at once. In Wait it takes
// the P after 10 ms, and its monitor wakes some sixty times until then.
func (p *Poller) Rest(limit time.Duration) int {
	if limit == 0 || p.coarse {
		return p.Wait(limit)
	}
	var until *unix.Timespec
	if limit > 0 {
		p.until = unix.NsecToTimespec(int64(limit))
		until = &p.until
	}
	n, errno := epollBlocked(uintptr(p.fd), uintptr(unsafe.Pointer(&p.ready)), uintptr(unsafe.Pointer(until)))
	runtime.KeepAlive(p)
	return woken(int(n), errno)
}

func woken(n int, errno syscall.Errno) int {
	switch errno {
	case 0:
		return n
	case unix.EINTR:
		return 0
	}
	panic("kernel: epoll_pwait: " + errno.Error())
}

// poll returns the events that there are. The Go runtime is not told of a call that doesn't wait.
func (p *Poller) poll() (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&p.ready)), MaxReady, 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

func (p *Poller) wait(limit time.Duration) (int, syscall.Errno) {
	var until *unix.Timespec
	if limit >= 0 {
		ts := unix.NsecToTimespec(int64(limit))
		until = &ts
	}
	n, _, errno := syscall.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(p.fd), uintptr(unsafe.Pointer(&p.ready)), MaxReady,
		uintptr(unsafe.Pointer(until)), 0, 0)
	return int(n), errno
}

// waitCoarsely waits up to a millisecond longer: the caller's work is then due, and not early.
func (p *Poller) waitCoarsely(limit time.Duration) (int, syscall.Errno) {
	milliseconds := -1
	if limit >= 0 {
		milliseconds = int(min((limit+time.Millisecond-1)/time.Millisecond, 1<<30))
	}
	n, _, errno := syscall.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&p.ready)), MaxReady,
		uintptr(milliseconds), 0, 0)
	return int(n), errno
}

// Ready returns event i of the last Wait. After Wake there may be one of a descriptor that nobody
// has added.
func (p *Poller) Ready(i int) (fd int, e Events) {
	ready := &p.ready[i]
	if ready.Events&(unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		e = Input
	}
	if ready.Events&(unix.EPOLLPRI|unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		e |= All
	}
	if ready.Events&unix.EPOLLOUT != 0 {
		e |= Output
	}
	return int(ready.Fd), e
}

// Wake ends the Wait in progress, or the next one. Any goroutine may call it before Close.
func (p *Poller) Wake() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _, _ = syscall.RawSyscall(unix.SYS_WRITE, uintptr(p.eventfd), uintptr(unsafe.Pointer(&one)), uintptr(len(one)))
}
