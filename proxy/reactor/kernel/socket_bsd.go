//go:build darwin || freebsd

package kernel

import (
	"errors"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Redirects says that the system can redirect connections to a transparent listener, and Moves that Pollers end
// watching a descriptor that stays open.
const Redirects, Moves = false, false

// newSocket returns a socket that doesn't block.
func newSocket(family int) (int, error) {
	syscall.ForkLock.RLock() // until it is closed at an exec
	fd, err := unix.Socket(family, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err == nil {
		err = unblock(fd)
	}
	return fd, os.NewSyscallError("socket", err)
}

// unblock makes fd not block, or closes it.
func unblock(fd int) error {
	err := unix.SetNonblock(fd, true)
	if err != nil {
		_ = unix.Close(fd)
	}
	return err
}

// Accept accepts a connection at a listening socket that doesn't block, and returns its descriptor,
// which doesn't block either. from is the zero value for a Unix socket. If none waits, the error is
// EAGAIN.
func Accept(listener int) (fd int, from netip.AddrPort, errno syscall.Errno) {
	syscall.ForkLock.RLock() // until it is closed at an exec
	fd, sa, err := unix.Accept(listener)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err == nil {
		err = unblock(fd)
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		from = netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		from = netip.AddrPortFrom(withZone(netip.AddrFrom16(sa.Addr).Unmap(), sa.ZoneId), uint16(sa.Port))
	}
	return fd, from, number(err)
}

// Receive reads from a socket that doesn't block. 0 bytes without an error are the end of the input.
// b must not be empty.
func Receive(fd int, b []byte) (int, syscall.Errno) {
	n, err := unix.Read(fd, b)
	return max(n, 0), number(err)
}

// number returns the number of an error of package unix.
func number(err error) (errno syscall.Errno) {
	if err != nil && !errors.As(err, &errno) {
		errno = unix.EIO
	}
	return errno
}

// Send writes to a socket that doesn't block. b must not be empty. Go ignores the signal of a
// broken connection.
func Send(fd int, b []byte) (int, syscall.Errno) {
	n, err := unix.Write(fd, b)
	return max(n, 0), number(err)
}

// SendParts sends the first of parts, which must not be empty.
func SendParts(fd int, parts [][]byte) (int, syscall.Errno) { return Send(fd, parts[0]) }

// MaxParts is how many parts SendParts sends at most.
const MaxParts = 1

// OriginalDst4 is an error: only Linux redirects connections to a transparent listener.
func OriginalDst4(int) (netip.AddrPort, error) { return netip.AddrPort{}, ErrLinuxOnly }

// OriginalDst6 is an error, as OriginalDst4.
func OriginalDst6(int) (netip.AddrPort, error) { return netip.AddrPort{}, ErrLinuxOnly }
