package epoll

import (
	"syscall"
	_ "unsafe" // for go:linkname

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// enterBlocked and exitBlocked are around a system call of which the Go runtime knows that it blocks.
// The runtime keeps them for packages outside (golang.org/issue/67401).
//
//go:linkname enterBlocked runtime.entersyscallblock
func enterBlocked()

//go:linkname exitBlocked runtime.exitsyscall
func exitBlocked()

// epollBlocked is epoll_pwait2(2) without a mask. Between the two calls of the runtime the stack must not grow.
//
//go:noinline
//go:nosplit
//go:norace
func epollBlocked(fd, ready, until uintptr) (n uintptr, errno syscall.Errno) {
	enterBlocked()
	n, _, errno = syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT2, fd, ready, kernel.MaxReady, until, 0, 0)
	exitBlocked()
	return n, errno
}
