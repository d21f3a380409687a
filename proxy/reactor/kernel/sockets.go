package kernel

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Conn returns a connection on the socket of fd, with a descriptor of its own.
func Conn(fd int) (net.Conn, error) {
	second, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	file := os.NewFile(uintptr(second), "")
	defer file.Close()
	return net.FileConn(file) // has a duplicate
}

// Duplicate returns a second descriptor of the socket of c, which doesn't block.
func Duplicate(c syscall.Conn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	var failed error
	err = raw.Control(func(of uintptr) { fd, failed = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(err, os.NewSyscallError("fcntl", failed))
}

// MaxRest bounds the connections that are accepted when a listener is closed: a backlog is seldom longer.
const MaxRest = 4096

// AcceptAll calls take with each connection that waits at a listening socket, as Accept returns it, until max were
// accepted. Otherwise it returns the error that ended it, EAGAIN if none waits any more.
func AcceptAll(listener, max int, take func(fd int, from netip.AddrPort)) syscall.Errno {
	for range max {
		switch fd, from, errno := Accept(listener); errno {
		case 0:
			take(fd, from)
		case unix.EINTR, unix.ECONNABORTED: // the client has left
		default:
			return errno
		}
	}
	return 0
}

// Gone reports whether nothing that is written to the socket of fd arrives: both directions have ended, or the
// connection has failed. The peer of a Unix socket is gone once it has closed, that of a TCP connection once its
// kernel has sent a reset. Some systems report neither, and a later write fails.
func Gone(fd int) bool {
	fds := [1]unix.PollFd{{Fd: int32(fd)}}
	n, err := unix.Poll(fds[:], 0)
	return n > 0 && err == nil && fds[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
}

// HasInput reports whether a read of the socket of fd would return at once.
func HasInput(fd int) bool {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds[:], 0)
	return n > 0 && err == nil
}

// IsLoopback reports whether the local address of a TCP connection is a loopback address.
func IsLoopback(fd int) bool { return localAddr(fd).Addr().IsLoopback() }

// localAddr returns the local address of a TCP connection.
func localAddr(fd int) netip.AddrPort {
	sa, _ := unix.Getsockname(fd)
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port))
	}
	return netip.AddrPort{}
}

// Connect begins to connect to an address without a zone, and returns the descriptor, which doesn't
// block. When it is ready for Output, Connected says how it went.
func Connect(to netip.AddrPort) (fd int, err error) {
	family, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: to.Addr().As16(), Port: int(to.Port())})
	if to.Addr().Is4() {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}
	}
	if fd, err = newSocket(family); err != nil {
		return -1, err
	}
	if err = unix.Connect(fd, sa); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return -1, errors.Join(os.NewSyscallError("connect", err), unix.Close(fd))
	}
	return fd, nil
}

// Connected returns the error with which a connect to an address has ended, EINPROGRESS if it has not ended. A
// socket whose own port is the one that it dials connects to itself, if nobody listens there. That is
// ECONNREFUSED: otherwise nobody else could listen there any more.
func Connected(fd int, to netip.AddrPort) error {
	errno, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && errno != 0 {
		err = syscall.Errno(errno)
	}
	if err == nil {
		if _, err := unix.Getpeername(fd); errors.Is(err, unix.ENOTCONN) {
			return unix.EINPROGRESS
		}
	}
	if err == nil && localAddr(fd) == to {
		err = unix.ECONNREFUSED
	}
	return os.NewSyscallError("connect", err)
}

// SetStreamOptions turns on TCP_NODELAY and keep-alive probes: the first after idle of silence,
// further ones at the same interval. After count probes without an acknowledgement the kernel ends
// the connection. Accepted connections have the options of their listening socket.
func SetStreamOptions(fd int, idle time.Duration, count int) error {
	var failed error
	for _, o := range []struct{ level, name, value int }{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, KeepAliveTime, int(idle / time.Second)},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(idle / time.Second)},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, count},
	} {
		failed = errors.Join(failed, unix.SetsockoptInt(fd, o.level, o.name, o.value))
	}
	return os.NewSyscallError("setsockopt", failed)
}

// SharePort sets whether a listening socket of TCP allows others of the same user, which do so too, at addresses that
// overlap its own. The kernel asks when a socket is bound.
func SharePort(fd int, on bool) error {
	value := 0
	if on {
		value = 1
	}
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, value))
}

// withZone adds the interface to an address that means nothing without it.
func withZone(ip netip.Addr, scope uint32) netip.Addr {
	if ip.Is6() && ip.IsLinkLocalUnicast() {
		return ip.WithZone(strconv.Itoa(int(scope)))
	}
	return ip
}

// Back-off after a failed accept, whose usual cause is a lack of descriptors: it doubles from MinBackoff to MaxBackoff.
const (
	MinBackoff = 5 * time.Millisecond
	MaxBackoff = time.Second
)
