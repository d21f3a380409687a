package reactor

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

type connState uint8

const (
	connDialing  connState = iota // outbound, no socket on the loop yet
	connArriving                  // inbound, on its way to the loop
	connOpen                      // both directions in use
	connDraining                  // Drain was called, and output is left to send
	connLinger                    // the write side is shut after Drain; the peer's end is awaited
	connClosed                    // no socket; OnClose was called, or will be at the end of the turn
)

type conn struct {
	loop        *eventLoop
	stream      loop.Stream // set by accept on arrival, for an inbound one
	accept      func(l loop.Loop, remote string) loop.Stream
	remote      string
	peer        net.Addr // who an accepted peer is; nil means the address of the connection
	slot        int      // index in eventLoop.conns
	state       connState
	reservation reservation // of an open connection, until it is closed or detached

	// gc is gnet's connection, nil from gnet's OnClose on: the descriptor may then be reused
	// at any time, and gnet would still write to it.
	gc gnet.Conn

	arrived bool  // gnet has called OnOpen
	err     error // argument of Stream.OnClose

	secure *secure            // nil means plain text
	config func() *tls.Config // nil means plain text

	original netip.AddrPort // of an accepted connection that was redirected
	early    []byte         // input that was read before it arrived on the loop

	timer loop.Timer // of a dial or a drain
	drain drain
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

// Buffered implements loop.Conn.
func (c *conn) Buffered() int {
	if c.gc == nil {
		return 0
	}
	return c.gc.OutboundBuffered()
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
func (c *conn) OriginalDst() netip.AddrPort { return c.original }

// SetStream implements loop.Conn.
func (c *conn) SetStream(s loop.Stream) { c.stream = s }

func (c *conn) onGnetOpen(gc gnet.Conn) {
	c.arrived = true
	c.gc = gc
	c.loop.eng.count.open.Add(1)
	switch c.state {
	case connClosed: // the dial timed out before
		_ = c.loop.el.Close(gc)
		return
	case connDialing:
		c.loop.eng.count.dialed.Add(1)
		c.loop.Stop(&c.timer)
	default:
		c.loop.adopt(c)
	}
	c.become(connOpen)
	c.callOnOpen()
}

func (c *conn) callOnOpen() {
	defer c.loop.recovered(c)
	if c.accept != nil {
		c.stream = c.accept(c.loop, c.remote)
		if c.stream == nil {
			c.end(nil)
			return
		}
	}
	c.stream.OnOpen(c)
	if c.secure != nil && c.state == connOpen {
		c.secure.beginTrust()
		c.secure.decryptInput()
	}
	early := c.early
	c.early = nil
	c.onInput(early)
}

// sendCloseNotify sends the close_notify of TLS before this side closes, so that the peer can
// tell an orderly end from a truncated one.
func (c *conn) sendCloseNotify() {
	_ = c.secure.tls.CloseWrite() // an error has called onGnetClose
	if c.state == connClosed {
		c.err = nil // the write failed, but this side has closed the connection
	}
}

// onInput passes b to the stream, or drops it after Drain.
func (c *conn) onInput(b []byte) {
	if c.state != connOpen || len(b) == 0 {
		return
	}
	defer c.loop.recovered(c)
	if c.secure != nil {
		c.secure.wire.in = b // all of it is decrypted while the connection is open
		c.secure.decryptInput()
		return
	}
	c.stream.OnData(b)
}

// readUnread passes to the stream the bytes that the peer of a dialled connection sent before
// it reset the connection. gnet writes its output first, and closes without a read if that
// fails. But a server that refuses the rest of a request has often responded.
func (c *conn) readUnread() {
	if c.state != connOpen || c.Buffered() == 0 {
		return
	}
	b := make([]byte, unreadSize)
	for c.state == connOpen {
		n, err := unix.Read(c.gc.Fd(), b)
		if err != nil || n == 0 {
			return
		}
		c.onInput(b[:n])
	}
}

const unreadSize = 64 << 10

// end closes the connection in any state but connClosed. OnClose follows at the turn's end.
func (c *conn) end(err error) {
	c.setClosed(err)
	gc := c.gc
	if gc == nil {
		return
	}
	if gc.OutboundBuffered() > 0 {
		// A truncated response must not look complete: close with a reset.
		_ = gc.SetLinger(0)
	}
	_ = c.loop.el.Close(gc) // calls onGnetClose, which clears c.gc
}

func (c *conn) onGnetClose(err error) {
	if c.gc != nil {
		c.gc = nil
		c.loop.eng.count.open.Add(-1)
		c.loop.load.Add(-1)
		c.reservation.release()
	}
	switch c.state {
	case connClosed:
	case connDraining, connLinger:
		c.setClosed(nil)
	default:
		err = cause(err)
		if err == io.EOF && c.secure != nil {
			err = errTruncated
		}
		c.setClosed(err)
	}
}

func (c *conn) setClosed(err error) {
	if c.state == connDialing {
		c.loop.eng.count.dialErrors.Add(1)
	}
	c.become(connClosed)
	c.err = err
	c.loop.Stop(&c.timer)
	if c.secure != nil {
		c.loop.Stop(&c.secure.expiry)
	}
	c.loop.forget(c)
	c.loop.closed = append(c.loop.closed, c)
	c.loop.turns.workLeft = true
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

// writeSocket writes b to the socket. Bytes that the kernel does not take are given to gnet,
// which buffers them and writes them later. An error closes the connection.
//
// gnet's own write costs 0.5 of 8 µs more: write(2) does checks for files, and the Go runtime
// is told of a system call that may block. It is not told of kernel.Send. The garbage collector
// can't stop this thread before that returns, and all loops wait for that. Copying 4 MiB
// takes 2 ms, so gnet writes long input.
func (c *conn) writeSocket(b []byte) error {
	if c.gc == nil {
		return net.ErrClosed
	}
	if len(b) <= maxRawSend && c.gc.OutboundBuffered() == 0 {
		n, errno := kernel.Send(c.gc.Fd(), b)
		switch {
		case errno == 0:
			b = b[n:]
		case errno != unix.EAGAIN:
			c.end(errno)
			return errno
		}
	}
	if len(b) == 0 {
		return nil
	}
	_, err := c.gc.Write(b) // an error has called gnet's OnClose, and so onGnetClose
	return err
}

// maxRawSend is the largest input for kernel.Send, which takes about 50 µs for it.
const maxRawSend = 64 << 10
