package reactor

import (
	"io"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// onInput passes b to the receiver, or drops it after Drain and after the peer's end.
func (c *conn) onInput(b []byte) {
	if c.state != connOpen || c.toldEnd || len(b) == 0 {
		return
	}
	if c.secure != nil {
		c.secure.wire.in = b // all of it is decrypted while the connection is open
		c.secure.decryptInput()
		return
	}
	c.receiver.OnData(b)
}

// onEvents implements watcher. Input comes first: a server that refuses the rest of a request has often
// responded before it resets the connection.
func (c *conn) onEvents(e kernel.Events) {
	defer c.loop.recovered(c)
	if c.state == connDialing {
		if e&kernel.Output != 0 {
			c.dial.onConnected()
		}
		return
	}
	if c.loop.moving.to != nil && e == kernel.Input && c.loop.moving.move(c) {
		return
	}
	switch {
	case e&kernel.Input == 0:
	case !c.eof:
		c.read(c.unix || e&kernel.All != 0)
	case kernel.Gone(c.fd):
		c.endBroken(unix.ECONNRESET)
	}
	if e&kernel.Output != 0 && c.fd >= 0 {
		if errno := c.onWritable(); errno != 0 {
			c.endAfterInput(errno)
			return
		}
		c.checkRoom()
		if c.state == connDraining {
			c.drain.check()
		}
	}
}

// endAfterInput passes on what the peer had sent when output that was kept could not be sent: often a response,
// of which maxReads reads are passed on. The output stays, so that the connection does not look as if it
// could be used again.
func (c *conn) endAfterInput(failed error) {
	if c.err == nil {
		c.err = failed
	}
	c.read(true)
	if c.fd >= 0 {
		c.endBroken(c.err)
	}
}

// read passes on what the socket has. It stops after a read that does not fill the memory for it, unless all is set: then
// it reads until the socket has none. After maxReads the rest is left to the next turn. A long read counts as several.
func (c *conn) read(all bool) {
	for left := maxReads; left > 0; {
		b := c.room()
		n, errno := kernel.Receive(c.fd, b)
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN:
			return
		case errno != 0:
			c.endBroken(errno)
			return
		case n == 0:
			c.onEOF()
			return
		}
		c.onInput(b[:n])
		if c.fd < 0 || n < len(b) && !all {
			return
		}
		left -= max(1, n/inputSize)
	}
	if err := c.rewatch(); err != nil {
		c.endBroken(err)
	}
}

// room returns the memory for the next read: the receiver's if it has any, and the input needs no decryption.
func (c *conn) room() []byte {
	if r, ok := c.receiver.(loop.Roomy); ok && c.secure == nil && c.state == connOpen && !c.toldEnd {
		if room := r.Room(); len(room) > 0 {
			return room[:min(len(room), maxRoom)]
		}
	}
	return c.loop.input
}

// onEOF receives the peer's end. A drain still sends what is buffered, and so does a receiver that stays.
func (c *conn) onEOF() {
	c.eof = true
	switch {
	case c.err != nil: // the kernel reports a failure once
		c.endBroken(c.err)
	case c.state == connDraining, c.state == connOpen && c.toldEnd:
	case c.secure == nil && c.stays():
	default:
		c.endBroken(io.EOF)
	}
}

// stays tells the receiver that the peer's output has ended, and reports whether the connection stays open
// for what the receiver has to send.
func (c *conn) stays() bool {
	s, ok := c.receiver.(loop.HalfCloser)
	if !ok || c.state != connOpen || kernel.Gone(c.fd) {
		return false
	}
	c.toldEnd = true
	return s.OnEnd()
}
