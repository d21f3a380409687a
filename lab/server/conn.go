package server

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/cloudwego/netpoll"
	"golang.org/x/sys/unix"
)

const (
	// maxUnread bounds the input that waits for a handler, in bytes. netpoll reads on while a handler
	// runs. The connection is closed when the handler returns, or while Respond waits, if more waits.
	maxUnread = 64 << 20

	// roomCheck is the longest that Respond waits before it checks maxUnread again, in milliseconds.
	roomCheck = 100
)

// handlers runs the handlers of all servers: netpoll has one Runner for the process.
var handlers crew

// netpoll wants to be configured before it serves. It has one poller below 20 Ps, which is enough:
// a second one would hold a second P. Its own pool of goroutines keeps none of them.
func init() {
	err := netpoll.Configure(netpoll.Config{
		Runner:       func(_ context.Context, task func()) { handlers.run(task) },
		LoggerOutput: io.Discard, // netpoll logs clients that leave
	})
	if err != nil {
		panic(err)
	}
}

// Conn is the connection of a client.
type Conn struct {
	nc     netpoll.Connection
	fd     int // of nc; open while the handler runs, and while the server lists the Conn
	handle Handler
	rest   []byte // input that the handler did not use
}

// newConn takes the socket of nc over, and closes nc.
func newConn(nc net.Conn) (*Conn, error) {
	defer nc.Close()
	fd, err := duplicate(nc)
	if err != nil {
		return nil, err
	}
	c := &Conn{fd: fd}
	c.nc, err = netpoll.NewFDConnection(fd) // closes fd if it fails
	return c, err
}

// duplicate returns a new descriptor of the socket of nc.
func duplicate(nc net.Conn) (fd int, err error) {
	s, ok := nc.(syscall.Conn)
	if !ok {
		return 0, errors.ErrUnsupported
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return 0, err
	}
	failed := raw.Control(func(of uintptr) {
		fd, err = renumbered(func(least int) (int, error) { return unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, least) })
	})
	return fd, cmp.Or(failed, err)
}

// OnClose makes the connection call f when it has ended, after the last call of the handler. Only
// the function that returns the handler may call OnClose.
func (c *Conn) OnClose(f func()) {
	c.nc.AddCloseCallback(func(netpoll.Connection) error {
		f()
		return nil
	})
}

// start calls handle for the input from the first byte on.
func (c *Conn) start(handle Handler) {
	c.handle = handle
	c.nc.SetOnRequest(func(context.Context, netpoll.Connection) error {
		c.onInput()
		return nil
	})
	if !c.nc.IsActive() { // netpoll closes a connection that ends by itself only from SetOnRequest on
		c.nc.Close()
	}
}

// onInput takes all input, or netpoll would call it again at once.
func (c *Conn) onInput() {
	r := c.nc.Reader()
	in, err := r.Next(r.Len())
	if len(c.rest) > 0 {
		c.rest = append(c.rest, in...)
		in = c.rest
	}
	used, open := c.handle(in)
	c.rest = append(c.rest[:0], in[used:]...)
	r.Release()
	if err != nil || !open || c.overfull() {
		c.nc.Close()
	}
}

func (c *Conn) overfull() bool { return len(c.rest)+c.nc.Reader().Len() > maxUnread }

// Alive reports whether the client has neither closed the connection nor its sending side, as far
// as netpoll knows.
func (c *Conn) Alive() bool { return c.nc.IsActive() }

// Respond sends b, and reports whether the kernel took all of it. Only the handler may call
// Respond. Unlike Write, Respond also reaches a client that has closed its sending side: netpoll
// takes that for the end of the connection.
func (c *Conn) Respond(b []byte) bool {
	for len(b) > 0 {
		n, err := unix.Write(c.fd, b)
		switch {
		case err == nil:
			b = b[n:]
		case err == unix.EAGAIN && !c.overfull():
			unix.Poll([]unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLOUT}}, roomCheck) // the next write has its error
		case err != unix.EINTR:
			return false
		}
	}
	return true
}

// Write sends b, and reports whether the kernel took all of it. Write fails once Alive is false. Any
// goroutine may call Write, one at a time.
func (c *Conn) Write(b []byte) bool {
	_, err := c.nc.Write(b)
	return err == nil
}

// Close closes the connection once the handler has returned. Any goroutine may call Close.
func (c *Conn) Close() { c.nc.Close() }

// hangUp shows the client the end, and makes all writes fail. The caller makes sure that the server
// lists c.
func (c *Conn) hangUp() { unix.Shutdown(c.fd, unix.SHUT_RDWR) }
