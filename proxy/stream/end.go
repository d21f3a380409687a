package stream

import (
	"cmp"
	"net"
	"sync/atomic"
	"syscall"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
	"github.com/remora-proxy/remora/proxy/stream/pipe"
)

type conn interface {
	net.Conn
	CloseWrite() error
}

// end is one of the two ends of a stream: the connection to the client, or to the endpoint. It is one of three kinds:
// one of tcp, unix and pipe is not nil.
type end struct {
	conn
	tcp     *net.TCPConn // below conn, without its TLS: has the counters, and is reset
	unix    *unixConn    // conn itself, on a Unix socket
	pipe    *pipe.Socket // conn itself, to a loop whose connection carries other streams, too
	secure  bool         // tcp or unix carries TLS
	finSent atomic.Bool  // the end of file was sent; a close after that is no reset
}

// unixConn counts the bytes of a Unix socket, for which the kernel has no counters.
type unixConn struct {
	conn
	below          *net.UnixConn
	received, sent atomic.Uint64
}

// unixPeer stands for the peers on Unix sockets, whose own addresses say nothing.
var unixPeer = &net.UnixAddr{Name: loop.UnixPeer, Net: "unix"}

func (c *unixConn) RemoteAddr() net.Addr { return unixPeer }

func (c *unixConn) Read(b []byte) (int, error) {
	n, err := c.conn.Read(b)
	c.received.Add(uint64(n))
	return n, err
}

func (c *unixConn) Write(b []byte) (int, error) {
	n, err := c.conn.Write(b)
	c.sent.Add(uint64(n))
	return n, err
}

// newEnd returns the end for c on below, a *net.TCPConn or *net.UnixConn, or nil.
func newEnd(c conn, below net.Conn, secure bool) *end {
	switch below := below.(type) {
	case *net.TCPConn:
		return &end{conn: c, tcp: below, secure: secure}
	case *net.UnixConn:
		u := &unixConn{conn: c, below: below}
		return &end{conn: u, unix: u, secure: secure}
	}
	return nil
}

// endOf returns the end for a pipe or a Socket with a connection of the system, and nil for any other.
func endOf(s loop.Socket) *end {
	if s, ok := s.(*pipe.Socket); ok {
		return &end{conn: s, pipe: s}
	}
	c, ok := s.(conn)
	over, below := s.(interface{ NetConn() net.Conn })
	if !ok || !below {
		return nil
	}
	return newEnd(c, over.NetConn(), s.Secure())
}

// buffered reports whether bytes of e pass through a buffer: the kernel neither encrypts them nor
// counts those of a Unix socket, and knows no pipes.
func (e *end) buffered() bool { return e.secure || e.tcp == nil }

// system returns the connection of the system, which a pipe has not.
func (e *end) system() interface {
	net.Conn
	syscall.Conn
} {
	if e.unix != nil {
		return e.unix.below
	}
	return e.tcp
}

// reset closes e so that its peer can't mistake what it received for everything. It closes the
// connection below first, since a close_notify of TLS would look complete. It does not block. Unix
// sockets have no reset: there the peer sees an end of file, or an error if it has bytes under way.
func (e *end) reset() {
	if e.pipe != nil {
		e.pipe.Reset()
		return
	}
	if e.tcp != nil {
		_ = e.tcp.SetLinger(0)
	}
	_ = e.system().Close()
	_ = e.Close()
}

// isReset reports whether the connection was reset: the kernel has closed it, and only the
// descriptor is left.
func (e *end) isReset() bool {
	switch {
	case e.unix != nil:
		return false // the next read or write has the error
	case e.pipe != nil:
		return e.pipe.IsReset()
	}
	k, err := e.kernel()
	return err != nil || k.Closed
}

// awaitGone blocks until nothing that is written to e arrives, or to the deadline for reads. The input of
// e, which is no pipe, has ended.
func (e *end) awaitGone() error {
	sc, err := e.system().SyscallConn()
	if err != nil {
		return err
	}
	return sc.Read(func(fd uintptr) bool { return kernel.Gone(int(fd)) })
}

func (e *end) moved() uint64 {
	switch {
	case e.unix != nil:
		return e.unix.received.Load() + e.unix.sent.Load()
	case e.pipe != nil:
		c := e.pipeCounters()
		return c.received + c.acknowledged
	}
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

// queued returns the length of one of the kernel's queues of e, or 0 if e is closed. What a pipe
// holds of its output is that of either queue of output.
func (e *end) queued(length func(fd int) (int, error)) (n int) {
	if e.pipe != nil {
		return e.pipeCounters().unacknowledged
	}
	sc, err := e.system().SyscallConn()
	if err != nil {
		return 0
	}
	if sc.Control(func(fd uintptr) { n, err = length(int(fd)) }) != nil || err != nil {
		return 0
	}
	return n
}

// counters are the kernel's, or those of a Unix socket, of one connection, in bytes.
type counters struct {
	received, acknowledged uint64 // since the connection was made
	unread                 int    // received and not read
	unacknowledged         int    // written and not acknowledged
}

// counters returns zero values if e is closed.
func (e *end) counters() (c counters) {
	if e.pipe != nil {
		return e.pipeCounters()
	}
	if e.unix != nil {
		c.received, c.acknowledged = e.unix.received.Load(), e.unix.sent.Load()
	} else if k, err := e.kernel(); err == nil {
		c.received, c.acknowledged = k.Received, k.Acknowledged
	}
	c.unread, c.unacknowledged = e.queued(kernel.Unread), e.unacknowledged()
	return c
}

// pipeCounters counts what the loop takes as acknowledged.
func (e *end) pipeCounters() (c counters) {
	c.received, c.unread = e.pipe.Input()
	c.acknowledged, c.unacknowledged = e.pipe.Output()
	c.acknowledged -= uint64(c.unacknowledged)
	return c
}
