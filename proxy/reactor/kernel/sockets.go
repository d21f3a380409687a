package kernel

import (
	"errors"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// sockets returns the two ends of a pair of stream sockets.
func sockets() (a, b *net.UnixConn, err error) {
	syscall.ForkLock.RLock() // until both are closed at an exec
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(pair[0])
		unix.CloseOnExec(pair[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	a, errA := connection(pair[0])
	b, errB := connection(pair[1])
	return a, b, errors.Join(errA, errB)
}

func connection(fd int) (*net.UnixConn, error) {
	file := os.NewFile(uintptr(fd), "socketpair")
	defer file.Close()
	c, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}
