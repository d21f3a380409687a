package kernel

import "golang.org/x/sys/unix"

// KeepAliveTime is the option for the time of silence before the first keep-alive probe.
const KeepAliveTime = unix.TCP_KEEPALIVE

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
