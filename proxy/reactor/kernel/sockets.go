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
	c, err := connOf(fd, "socketpair")
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// connOf returns the connection of a descriptor, which it owns.
func connOf(fd int, name string) (net.Conn, error) {
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	return net.FileConn(file)
}

// Accept accepts a connection that waits at a listening socket which doesn't block.
func Accept(listener int) (net.Conn, error) {
	syscall.ForkLock.RLock() // until it is closed at an exec
	fd, _, err := unix.Accept(listener)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, os.NewSyscallError("accept", err)
	}
	return connOf(fd, "accepted")
}
