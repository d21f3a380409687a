package kernel

import (
	"encoding/binary"
	"net/netip"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Redirects says that the system can redirect connections to a transparent listener.
const Redirects = true

// KeepAliveTime is the option for the time of silence before the first keep-alive probe.
const KeepAliveTime = unix.TCP_KEEPIDLE

// Send calls send(2) without waiting, and without raising a signal. b must not be empty. The Go
// runtime is not told of it.
func Send(fd int, b []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	runtime.KeepAlive(b)
	return int(n), errno
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
	ip := netip.AddrFrom16(r.Addr.Addr)
	if ip.IsLinkLocalUnicast() {
		ip = ip.WithZone(strconv.Itoa(int(r.Addr.Scope_id)))
	}
	var port [2]byte // in network order
	binary.NativeEndian.PutUint16(port[:], r.Addr.Port)
	return netip.AddrPortFrom(ip, binary.BigEndian.Uint16(port[:])), nil
}
