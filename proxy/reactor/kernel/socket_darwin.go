package kernel

import (
	"errors"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// Redirects says that the system can redirect connections to a transparent listener.
const Redirects = false

// KeepAliveTime is the option for the time of silence before the first keep-alive probe.
const KeepAliveTime = unix.TCP_KEEPALIVE

// Send writes to a socket that doesn't block. b must not be empty. Go ignores the signal of a
// broken connection.
func Send(fd int, b []byte) (int, syscall.Errno) {
	n, err := unix.Write(fd, b)
	var errno syscall.Errno
	if err != nil && !errors.As(err, &errno) {
		errno = unix.EIO
	}
	return max(n, 0), errno
}

// Unacknowledged returns how many bytes were written and not acknowledged.
func Unacknowledged(fd int) (int, error) {
	return unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_NWRITE)
}

// Unsent returns Unacknowledged: the system does not count bytes on their way.
func Unsent(fd int) (int, error) { return Unacknowledged(fd) }

// Unread returns how many bytes were received and not read.
func Unread(fd int) (int, error) { return unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_NREAD) }

// tcpsClosed is TCPS_CLOSED of netinet/tcp_fsm.h.
const tcpsClosed = 0

// TCPCounters returns the counters of a TCP connection. What was sent again counts twice.
func TCPCounters(fd int) (Counters, error) {
	info, err := unix.GetsockoptTCPConnectionInfo(fd, unix.IPPROTO_TCP, unix.TCP_CONNECTION_INFO)
	if err != nil {
		return Counters{}, err
	}
	unacknowledged := min(info.Txbytes, uint64(info.Snd_sbbytes))
	return Counters{Received: info.Rxbytes, Acknowledged: info.Txbytes - unacknowledged, Closed: info.State == tcpsClosed}, nil
}

// OriginalDst4 is an error: only Linux redirects connections to a transparent listener.
func OriginalDst4(int) (netip.AddrPort, error) { return netip.AddrPort{}, ErrLinuxOnly }

// OriginalDst6 is an error, as OriginalDst4.
func OriginalDst6(int) (netip.AddrPort, error) { return netip.AddrPort{}, ErrLinuxOnly }
