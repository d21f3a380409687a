package stream

import (
	"net"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/proxy/loop"
)

// conn is what is read and written: a TCP connection, or TLS on one.
type conn interface {
	net.Conn
	CloseWrite() error
}

// end is one connection of a stream.
type end struct {
	conn
	tcp    *net.TCPConn // below, for its counters and to reset it
	secure bool         // the bytes of tcp are encrypted ones
	told   atomic.Bool  // that there is no more for it; from then on a close is no reset
}

// endOf is the end that a Socket of a driver with sockets makes; nil for others.
func endOf(s loop.Socket) *end {
	c, ok := s.(conn)
	over, below := s.(interface{ NetConn() net.Conn })
	if !ok || !below {
		return nil
	}
	return &end{conn: c, tcp: over.NetConn().(*net.TCPConn), secure: s.Secure()}
}

// reset closes e so that its peer does not take what it got for all there is:
// from below, since the orderly end of TLS would tell it so. It does not block.
func (e *end) reset() {
	_ = e.tcp.SetLinger(0)
	_ = e.tcp.Close()
	_ = e.Close()
}

// dead tells whether the connection was reset: no state is left of it but the
// descriptor.
func (e *end) dead() bool {
	info, err := e.info()
	return err != nil || info.State == tcpClose
}

// tcpClose is TCP_CLOSE of linux/tcp_states.h.
const tcpClose = 7

// moved is the bytes that came and those that were acknowledged.
func (e *end) moved() uint64 {
	info, err := e.info()
	if err != nil {
		return 0
	}
	return info.Bytes_received + info.Bytes_acked
}

// info asks the kernel how the connection is.
func (e *end) info() (info *unix.TCPInfo, err error) {
	sc, err := e.tcp.SyscallConn()
	if err != nil {
		return nil, err
	}
	var failed error
	err = sc.Control(func(fd uintptr) {
		info, failed = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	if err == nil {
		err = failed
	}
	return info, err
}

// unsent is how many bytes the peer has yet to acknowledge.
func (e *end) unsent() (n int) {
	sc, err := e.tcp.SyscallConn()
	if err != nil {
		return 0
	}
	if sc.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }) != nil || err != nil {
		return 0
	}
	return n
}
