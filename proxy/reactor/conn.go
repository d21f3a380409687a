package reactor

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

type connState uint8

const (
	connDialing  connState = iota // outbound, not connected yet, or on its way to the loop
	connArriving                  // inbound, on its way to the loop
	connOpen                      // both directions in use
	connDraining                  // Drain was called, and output is left to send
	connLinger                    // the write side is shut after Drain; the peer's end is awaited
	connClosed                    // no socket; OnClose was called, or will be at the end of the turn
)

type conn struct {
	descriptor
	stream      loop.Stream // set on arrival, for an inbound one
	by          *Listener   // that has accepted it; nil for a dialled one
	remote      string
	peer        net.Addr // who an accepted peer is; nil means the address of the connection
	slot        int      // index in eventLoop.conns
	state       connState
	reservation reservation // of an open connection, until it is closed or detached
	home        *eventLoop  // in whose load it counts until then

	seen uint32 // moving.window when it last had input while connections moved
	past int    // what Movable.Leave returned on the loop before, for Movable.Resume

	eof   bool // the kernel has no more input; some may still be decrypted
	ended bool // the stream was told of the end of the input

	err error // argument of Stream.OnClose; of an open connection that of a write that has failed

	secure *secure            // nil means plain text
	config func() *tls.Config // nil means plain text

	redirected *redirection // nil for most

	timer *loop.Timer // of a dial or a drain in progress, else nil
	tried atomic.Bool // the dialer has begun to dial it
	drain drain
}

// redirection is what is known of an accepted connection that the kernel redirected.
type redirection struct {
	to    netip.AddrPort // its original destination
	early []byte         // input that was read before it arrived on the loop
}

var _ loop.Conn = (*conn)(nil)

// become changes the state, which only moves down the list. Anything else is a bug of this
// package: the panic closes the connection.
func (c *conn) become(next connState) {
	if next <= c.state {
		panic("reactor: illegal change of a connection's state")
	}
	c.state = next
}

// Write implements loop.Conn.
func (c *conn) Write(b []byte) {
	if c.state != connOpen || len(b) == 0 {
		return
	}
	if c.secure != nil {
		c.secure.write(b)
		return
	}
	_ = c.writeSocket(b) // an error has closed c
}

// WriteParts implements loop.Conn.
func (c *conn) WriteParts(parts [][]byte) {
	switch {
	case c.state != connOpen:
	case c.secure != nil:
		c.secure.writeParts(parts)
	default:
		if errno := c.descriptor.writeParts(parts); errno != 0 {
			c.broken(errno)
		}
	}
}

// Buffered implements loop.Conn.
func (c *conn) Buffered() int { return c.buffered() }

// HasInput implements loop.Conn.
func (c *conn) HasInput() bool { return c.state == connOpen && !c.eof && kernel.HasInput(c.fd) }

// AwaitRoom implements loop.Conn.
func (c *conn) AwaitRoom(left int, f *loop.Flush) {
	if c.state == connOpen {
		c.awaits = awaited{left, f}
	}
}

// Close implements loop.Conn.
func (c *conn) Close() {
	if c.secure != nil && c.state == connOpen && c.Buffered() == 0 {
		c.sendCloseNotify()
	}
	if c.state != connClosed {
		c.end(nil)
	}
}

// RemoteAddr implements loop.Conn.
func (c *conn) RemoteAddr() string { return c.remote }

// OriginalDst implements loop.Conn.
func (c *conn) OriginalDst() netip.AddrPort {
	if c.redirected == nil {
		return netip.AddrPort{}
	}
	return c.redirected.to
}

// SetStream implements loop.Conn.
func (c *conn) SetStream(s loop.Stream) { c.stream = s }

// arrive begins the events of a connection that has its socket: accepted, or dialled elsewhere. After
// an error the caller must end it.
func (c *conn) arrive() error {
	if c.state == connClosed { // the dial timed out before
		c.descriptor.close()
		c.unreserve()
		return nil
	}
	if err := c.watch(c, kernel.Input); err != nil {
		return err
	}
	if c.state == connArriving {
		c.loop.adopt(c)
	}
	c.open()
	return nil
}

// open tells the stream that the connection is established.
func (c *conn) open() {
	c.loop.eng.count.open.Add(1)
	if c.state == connDialing {
		c.loop.eng.count.dialed.Add(1)
		c.loop.Stop(c.timer)
		c.timer = nil
	}
	c.become(connOpen)
	c.callOnOpen()
}

func (c *conn) callOnOpen() {
	defer c.loop.recovered(c)
	if c.by != nil {
		c.stream = c.by.accept(c.loop, c.remote)
		if c.stream == nil {
			c.end(nil)
			return
		}
	}
	c.stream.OnOpen(c)
	if s, ok := c.stream.(loop.Movable); ok && c.past > 0 {
		s.Resume(c.past)
	}
	if c.secure != nil && c.state == connOpen {
		c.secure.beginTrust()
		c.secure.decryptInput()
	}
	if r := c.redirected; r != nil {
		early := r.early
		r.early = nil
		c.onInput(early)
	}
}

// sendCloseNotify sends the close_notify of TLS before this side closes, so that the peer can
// tell an orderly end from a truncated one.
func (c *conn) sendCloseNotify() {
	_ = c.secure.tls.CloseWrite() // an error has closed c
	if c.state == connClosed {
		c.err = nil // the write failed, but this side has closed the connection
	}
}

// onInput passes b to the stream, or drops it after Drain and after the peer's end.
func (c *conn) onInput(b []byte) {
	if c.state != connOpen || c.ended || len(b) == 0 {
		return
	}
	if c.secure != nil {
		c.secure.wire.in = b // all of it is decrypted while the connection is open
		c.secure.decryptInput()
		return
	}
	c.stream.OnData(b)
}

// onEvents implements watcher. Input comes first: a server that refuses the rest of a request has often
// responded before it resets the connection.
func (c *conn) onEvents(e kernel.Events) {
	defer c.loop.recovered(c)
	if c.state == connDialing {
		if e&kernel.Output != 0 {
			c.endConnect()
		}
		return
	}
	if c.loop.moving.to != nil && e == kernel.Input && c.move() {
		return
	}
	switch {
	case e&kernel.Input == 0:
	case !c.eof:
		c.read(c.unix || e&kernel.All != 0)
	case kernel.Gone(c.fd):
		c.broken(unix.ECONNRESET)
	}
	if e&kernel.Output != 0 && c.fd >= 0 {
		if errno := c.onWritable(); errno != 0 {
			c.readLast(errno)
			return
		}
		c.checkRoom()
		if c.state == connDraining {
			c.checkDrained()
		}
	}
}

// readLast passes on what the peer had sent when output that was kept could not be sent: often a response,
// of which maxReads reads are passed on. The output stays, so that the connection does not look as if it
// could be used again.
func (c *conn) readLast(failed error) {
	c.err = failed
	c.read(true)
	if c.fd >= 0 {
		c.broken(failed)
	}
}

// read passes on what the socket has. It stops after a read that does not fill the buffer, unless all is set: then it
// reads until the socket has none. After maxReads the rest is left to the next turn.
func (c *conn) read(all bool) {
	for range maxReads {
		n, errno := kernel.Receive(c.fd, c.loop.input)
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN:
			return
		case errno != 0:
			c.broken(errno)
			return
		case n == 0:
			c.onEOF()
			return
		}
		c.onInput(c.loop.input[:n])
		if c.fd < 0 || n < len(c.loop.input) && !all {
			return
		}
	}
	if err := c.rewatch(); err != nil {
		c.broken(err)
	}
}

// end closes the connection in any state but connClosed. OnClose follows at the turn's end.
func (c *conn) end(err error) {
	c.setClosed(err)
	c.descriptor.close()
}

// broken ends the connection after its socket has ended or failed.
func (c *conn) broken(err error) {
	switch {
	case c.state == connDraining || c.state == connLinger:
		err = nil
	case err == io.EOF && c.secure != nil:
		err = errTruncated
	}
	c.end(err)
}

// unreserve uncounts the connection.
func (c *conn) unreserve() {
	if c.home != nil {
		c.home.load.Add(-1)
		c.home = nil
	}
	c.reservation.release()
}

func (c *conn) setClosed(err error) {
	l := c.loop
	if c.state > connDialing {
		l.eng.count.open.Add(-1)
	} else {
		l.eng.count.dialErrors.Add(1)
	}
	c.unreserve() // a dial without a socket has reserved nothing
	c.become(connClosed)
	c.err = err
	if c.timer != nil {
		l.Stop(c.timer)
	}
	if c.secure != nil {
		l.Stop(&c.secure.expiry)
	}
	l.forget(c)
	l.closed = append(l.closed, c)
}

func (c *conn) callOnClose() {
	if c.stream == nil { // accept returned nil or panicked
		return
	}
	defer c.loop.recovered(nil)
	c.stream.OnClose(c.err)
}

func (c *conn) timerFired() {
	switch c.state {
	case connDialing:
		if c.fd < 0 && !c.tried.Load() {
			c.end(loop.ErrDialQueue)
			return
		}
		c.end(syscall.ETIMEDOUT)
	case connDraining:
		c.checkDrained()
	case connLinger:
		c.checkLinger()
	}
}

// cause reduces err to io.EOF or to the error number of the system that it wraps.
func cause(err error) error {
	var errno syscall.Errno
	var timeout interface{ Timeout() bool }
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return io.EOF
	case errors.As(err, &errno):
		return errno
	case errors.As(err, &timeout) && timeout.Timeout():
		return syscall.ETIMEDOUT
	}
	return err
}

// writeSocket sends b, or keeps what the kernel does not take. An error closes the connection.
func (c *conn) writeSocket(b []byte) error {
	if c.fd < 0 {
		return net.ErrClosed
	}
	if errno := c.descriptor.write(b); errno != 0 {
		c.broken(errno)
		return errno
	}
	return nil
}
