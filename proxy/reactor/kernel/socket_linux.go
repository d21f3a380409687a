package kernel

import (
	"encoding/binary"
	"net/netip"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Redirects says that the system can redirect connections to a transparent listener, and Moves that Pollers end
// watching a descriptor that stays open.
const Redirects, Moves = true, true

// KeepAliveTime is the option for the time of silence before the first keep-alive probe.
const KeepAliveTime = unix.TCP_KEEPIDLE

// Send calls send(2) without waiting, and without raising a signal. b must not be empty.
func Send(fd int, b []byte) (int, syscall.Errno) {
	return move(unix.SYS_SENDTO, fd, b, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}

// SendParts is Send of what is in parts, in a row: the first MaxParts of them. The first part must not be empty.
func SendParts(fd int, parts [][]byte) (_ int, errno syscall.Errno) {
	const flags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
	var vector [MaxParts]unix.Iovec
	size := 0
	for i, b := range parts[:min(len(parts), MaxParts)] {
		vector[i].Base = unsafe.SliceData(b)
		vector[i].SetLen(len(b))
		size += len(b)
	}
	message := unix.Msghdr{Iov: &vector[0]}
	message.SetIovlen(min(len(parts), MaxParts))
	var n uintptr
	if size > untold {
		n, _, errno = syscall.Syscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&message)), flags)
	} else {
		n, _, errno = syscall.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&message)), flags)
	}
	return int(n), errno
}

// MaxParts is enough for eight frames of a link: each is a header and a part of a body.
const MaxParts = 16

// Receive reads from a socket without waiting. 0 bytes without an error are the end of the input. b must not be empty.
func Receive(fd int, b []byte) (int, syscall.Errno) {
	return move(unix.SYS_RECVFROM, fd, b, unix.MSG_DONTWAIT)
}

// The Go runtime is told of system calls that may move more bytes than untold. Of the others it is not told: it can't stop
// the thread for a garbage collection before the call returns, and all loops wait for that, some 50 µs.
const untold = 64 << 10

// move calls sendto(2) or recvfrom(2).
func move(trap uintptr, fd int, b []byte, flags uintptr) (_ int, errno syscall.Errno) {
	var n uintptr
	if len(b) > untold {
		n, _, errno = syscall.Syscall6(trap, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), flags, 0, 0)
	} else {
		n, _, errno = syscall.RawSyscall6(trap, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), flags, 0, 0)
	}
	return int(n), errno
}

// Accept accepts a connection at a listening socket that doesn't block, and returns its descriptor,
// which doesn't block either. from is the zero value for a Unix socket. If none waits, the error is
// EAGAIN.
func Accept(listener int) (fd int, from netip.AddrPort, errno syscall.Errno) {
	var sa unix.RawSockaddrAny
	size := uint32(unsafe.Sizeof(sa))
	n, _, errno := syscall.RawSyscall6(unix.SYS_ACCEPT4, uintptr(listener), uintptr(unsafe.Pointer(&sa)),
		uintptr(unsafe.Pointer(&size)), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	if errno != 0 {
		return -1, from, errno
	}
	return int(n), addrPort(&sa), 0
}

func addrPort(sa *unix.RawSockaddrAny) netip.AddrPort {
	port := (*[4]byte)(unsafe.Pointer(sa)) // after the family, in network order
	switch sa.Addr.Family {
	case unix.AF_INET:
		sa4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		return netip.AddrPortFrom(netip.AddrFrom4(sa4.Addr), binary.BigEndian.Uint16(port[2:]))
	case unix.AF_INET6:
		sa6 := (*unix.RawSockaddrInet6)(unsafe.Pointer(sa))
		return netip.AddrPortFrom(withZone(netip.AddrFrom16(sa6.Addr).Unmap(), sa6.Scope_id), binary.BigEndian.Uint16(port[2:]))
	}
	return netip.AddrPort{}
}

// newSocket returns a socket that doesn't block.
func newSocket(family int) (int, error) {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	return fd, os.NewSyscallError("socket", err)
}

// Unacknowledged returns how many bytes were written and not acknowledged.
func Unacknowledged(fd int) (int, error) { return unix.IoctlGetInt(fd, unix.SIOCOUTQ) }

// Unsent returns how many bytes were written and not sent.
func Unsent(fd int) (int, error) { return unix.IoctlGetInt(fd, unix.SIOCOUTQNSD) }

// Unread returns how many bytes were received and not read.
func Unread(fd int) (int, error) { return unix.IoctlGetInt(fd, unix.SIOCINQ) }

// tcpClose is TCP_CLOSE of linux/tcp_states.h.
const tcpClose = 7

// TCPCounters returns the counters of a TCP connection.
func TCPCounters(fd int) (Counters, error) {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return Counters{}, err
	}
	return Counters{Received: info.Bytes_received, Acknowledged: info.Bytes_acked, Closed: info.State == tcpClose}, nil
}

// OriginalDst4 returns the destination of a redirected IPv4 connection. It reads a sockaddr_in as
// the 20 bytes of an ipv6_mreq: package unix has no call for this option (linux/netfilter_ipv4.h),
// and an ipv6_mreq is long enough.
func OriginalDst4(fd int) (netip.AddrPort, error) {
	r, err := unix.GetsockoptIPv6Mreq(fd, unix.SOL_IP, unix.SO_ORIGINAL_DST)
	if err != nil {
		return netip.AddrPort{}, err
	}
	b := r.Multiaddr
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:4])), nil
}

// OriginalDst6 returns the destination of a redirected IPv6 connection. It reads a sockaddr_in6 as
// the address that begins an ip6_mtuinfo (linux/netfilter_ipv6/ip6_tables.h: the option has the
// same number).
func OriginalDst6(fd int) (netip.AddrPort, error) {
	r, err := unix.GetsockoptIPv6MTUInfo(fd, unix.SOL_IPV6, unix.SO_ORIGINAL_DST)
	if err != nil {
		return netip.AddrPort{}, err
	}
	ip := withZone(netip.AddrFrom16(r.Addr.Addr), r.Addr.Scope_id)
	var port [2]byte // in network order
	binary.NativeEndian.PutUint16(port[:], r.Addr.Port)
	return netip.AddrPortFrom(ip, binary.BigEndian.Uint16(port[:])), nil
}

// EpollEvents returns what flags of epoll say.
func EpollEvents(flags uint32) (e Events) {
	if flags&(unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		e = Input
	}
	if flags&(unix.EPOLLPRI|unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		e |= All
	}
	if flags&unix.EPOLLOUT != 0 {
		e |= Output
	}
	return e
}
