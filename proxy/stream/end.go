package stream

import (
	"cmp"
	"net"
	"sync/atomic"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

type conn interface {
	net.Conn
	CloseWrite() error
}

type end struct {
	conn
	tcp     *net.TCPConn // below conn: has the counters, and is reset
	secure  bool         // tcp carries TLS
	finSent atomic.Bool  // the end of file was sent; a close after that is no reset
}

// endOf returns the end for a Socket with a TCP connection, and nil for any other Socket.
func endOf(s loop.Socket) *end {
	c, ok := s.(conn)
	over, below := s.(interface{ NetConn() net.Conn })
	if !ok || !below {
		return nil
	}
	return &end{conn: c, tcp: over.NetConn().(*net.TCPConn), secure: s.Secure()}
}

// reset closes e so that its peer can't mistake what it received for everything. It closes tcp
// first, since a close_notify of TLS would look complete. It does not block.
func (e *end) reset() {
	_ = e.tcp.SetLinger(0)
	_ = e.tcp.Close()
	_ = e.Close()
}

// isReset reports whether the connection was reset: the kernel has closed it, and only the
// descriptor is left.
func (e *end) isReset() bool {
	k, err := e.kernel()
	return err != nil || k.Closed
}

func (e *end) moved() uint64 {
	k, err := e.kernel()
	if err != nil {
		return 0
	}
	return k.Received + k.Acknowledged
}

func (e *end) kernel() (k kernel.Counters, err error) {
	sc, err := e.tcp.SyscallConn()
	if err != nil {
		return k, err
	}
	var failed error
	err = sc.Control(func(fd uintptr) { k, failed = kernel.TCPCounters(int(fd)) })
	return k, cmp.Or(err, failed)
}

func (e *end) unacknowledged() int { return e.queued(kernel.Unacknowledged) }

// unsent returns how many bytes wait because e's peer or the network takes no more now.
func (e *end) unsent() int { return e.queued(kernel.Unsent) }

// queued returns the length of one of the kernel's queues of e, or 0 if e is closed.
func (e *end) queued(length func(fd int) (int, error)) (n int) {
	sc, err := e.tcp.SyscallConn()
	if err != nil {
		return 0
	}
	if sc.Control(func(fd uintptr) { n, err = length(int(fd)) }) != nil || err != nil {
		return 0
	}
	return n
}

// counters are the kernel's, of one connection, in bytes.
type counters struct {
	received, acknowledged uint64 // since the connection was made
	unread                 int    // received and not read
	unacknowledged         int    // written and not acknowledged
}

// counters returns zero values if e is closed.
func (e *end) counters() (c counters) {
	if k, err := e.kernel(); err == nil {
		c.received, c.acknowledged = k.Received, k.Acknowledged
	}
	c.unread, c.unacknowledged = e.queued(kernel.Unread), e.unacknowledged()
	return c
}
