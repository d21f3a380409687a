package sim

import (
	"errors"
	"io"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// Detach implements loop.Conn. It refuses unless Options.Sockets is set: virtual time can't
// wait for a goroutine that blocks on a socket.
func (c *conn) Detach() (loop.Socket, error) {
	c.loop.check("Conn.Detach")
	switch {
	case c.state != stateOpen || c.end.reset:
		return nil, loop.ErrDetachClosed
	case !c.w.Options.Sockets:
		return nil, errors.ErrUnsupported
	case c.Buffered() > 0:
		return nil, loop.ErrDetachBuffered
	}
	if f := c.w.Options.OnDetach; f != nil {
		if err := f(); err != nil {
			return nil, err
		}
	}
	c.become(stateDetached)
	c.err = nil
	c.loop.closed = append(c.loop.closed, c)
	return socket{c}, nil
}

// ErrWouldBlock is the error of a Socket's methods in the place of blocking: no input has
// arrived, or the kernel's buffer has no room.
var ErrWouldBlock = errors.New("sim: the call would block")

// socket is a connection that has left its loop. Only the world's goroutine calls its
// methods, at any time. They never block.
type socket struct{ c *conn }

// Read reads bytes that have arrived.
func (s socket) Read(b []byte) (int, error) {
	in := &s.c.end.peer.out
	n := int(min(in.unread(), int64(len(b))))
	switch {
	case n > 0:
		in.take(b[:n])
		s.c.end.peer.windowMoved()
		return n, nil
	case s.c.end.reset:
		return 0, errReset
	case in.ended():
		return 0, io.EOF
	}
	return 0, ErrWouldBlock
}

// Write sends b if the kernel has room for any of it.
func (s socket) Write(b []byte) (int, error) {
	switch {
	case s.c.end.reset || s.c.end.out.fin != finNone:
		return 0, errReset
	case !s.c.end.out.room(s.c.w.Options.SendBuffer):
		return 0, ErrWouldBlock
	}
	s.c.end.out.append(b)
	s.c.end.out.kernel = s.c.end.out.written
	s.c.end.transmit()
	return len(b), nil
}

// CloseWrite sends an end of file after the output.
func (s socket) CloseWrite() error {
	s.c.end.sendFin()
	return nil
}

// The deadlines bound nothing: no method waits.
func (s socket) SetDeadline(time.Time) error      { return nil }
func (s socket) SetReadDeadline(time.Time) error  { return nil }
func (s socket) SetWriteDeadline(time.Time) error { return nil }

// Secure is false: the simulation does not encrypt.
func (s socket) Secure() bool { return false }

// Reset closes as close(2) does without lingering.
func (s socket) Reset() {
	if s.c.state != stateDetached {
		return
	}
	s.c.become(stateClosed)
	if s.c.end.reset || s.c.end.out.dead {
		s.c.end.close()
		return
	}
	s.c.end.sendReset()
}

// Close closes as close(2) does.
func (s socket) Close() error {
	if s.c.state == stateDetached {
		s.c.become(stateClosed)
		s.c.end.close()
	}
	return nil
}
