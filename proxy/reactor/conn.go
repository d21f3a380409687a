package reactor

import (
	"crypto/tls"
	"errors"
	"io"
	"net/netip"
	"syscall"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/proxy/loop"
)

// connState is where a connection is in its life.
type connState uint8

const (
	connDialing  connState = iota // outbound, no socket on the loop yet
	connArriving                  // inbound, on its way to the loop
	connOpen                      // both directions in use
	connDraining                  // drained: output left to send
	connLinger                    // drained: the write side is shut, waiting for the peer's end
	connClosed                    // no socket; the stream was told or will be
)

// conn is one connection.
type conn struct {
	loop   *eventLoop
	stream loop.Stream // set by accept on arrival, for an inbound one
	accept func(l loop.Loop, remote string) loop.Stream
	remote string
	slot   int // index in eventLoop.conns
	state  connState
	place  place // of an accepted connection, until it leaves the loop

	// gc is gnet's side while it is open there, and nil from gnet's OnClose
	// on, at once: its descriptor may be another's in the next moment, and
	// gnet would write to it all the same.
	gc gnet.Conn

	arrived bool  // gnet announced the socket
	err     error // what OnClose will say

	secure *secure            // nil: plain text
	config func() *tls.Config // of a dial with TLS; nil: plain text

	original netip.AddrPort // of an accepted connection that was redirected
	early    []byte         // what it sent before it came to the loop

	timer loop.Timer // of a dial or a drain
	drain drain
}

var _ loop.Conn = (*conn)(nil)

// become changes the state, which only ever moves down the list. Anything else
// is a fault of this package: the panic ends the connection.
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
	_ = c.put(b) // an error has ended it
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
		c.notify()
	}
	if c.state != connClosed {
		c.end(nil)
	}
}

// RemoteAddr implements loop.Conn.
func (c *conn) RemoteAddr() string { return c.remote }

// OriginalDst implements loop.Conn.
func (c *conn) OriginalDst() netip.AddrPort { return c.original }

// opened is gnet's word that the socket is on the loop.
func (c *conn) opened(gc gnet.Conn) {
	c.arrived = true
	c.gc = gc
	c.loop.eng.count.open.Add(1)
	switch c.state {
	case connClosed: // the dial took too long
		_ = c.loop.el.Close(gc)
		return
	case connDialing:
		c.loop.eng.count.dialed.Add(1)
		c.loop.Stop(&c.timer)
	default:
		c.loop.adopt(c)
	}
	c.become(connOpen)
	c.start()
}

// start calls the stream for the first time.
func (c *conn) start() {
	defer c.loop.recovered(c)
	if c.accept != nil {
		c.stream = c.accept(c.loop, c.remote)
		if c.stream == nil {
			c.end(nil)
			return
		}
	}
	c.stream.OnOpen(c)
	if c.secure != nil {
		c.secure.pump()
	}
	early := c.early
	c.early = nil
	c.received(early)
}

// notify tells the peer, over TLS, that an end of our own choosing comes.
func (c *conn) notify() {
	c.secure.notify()
	if c.state == connClosed {
		c.err = nil // the peer was gone; the end is ours all the same
	}
}

// received hands b to the stream; after Drain it is dropped.
func (c *conn) received(b []byte) {
	if c.state != connOpen || len(b) == 0 {
		return
	}
	defer c.loop.recovered(c)
	if c.secure != nil {
		c.secure.received(b)
		return
	}
	c.stream.OnData(b)
}

// takeUnread hands over what a dialled connection's peer has sent before it reset
// the connection. gnet first writes what is left, and closes without a read when that
// fails; but a server that wants no more of a request has often answered it already.
func (c *conn) takeUnread() {
	if c.state != connOpen || c.Buffered() == 0 {
		return
	}
	b := make([]byte, unreadSize)
	for c.state == connOpen {
		n, err := unix.Read(c.gc.Fd(), b)
		if err != nil || n == 0 {
			return
		}
		c.received(b[:n])
	}
}

// unreadSize is how much takeUnread reads at once.
const unreadSize = 64 << 10

// end closes the connection, whatever its state. The stream hears of it, with
// err, at the end of the turn.
func (c *conn) end(err error) {
	c.closed(err)
	gc := c.gc
	if gc == nil {
		return
	}
	if gc.OutboundBuffered() > 0 {
		// A cut-off answer must not look like a complete one: end with a
		// reset.
		_ = gc.SetLinger(0)
	}
	_ = c.loop.el.Close(gc) // calls lost, where gc is dropped
}

// lost is gnet's word that the socket is going away.
func (c *conn) lost(err error) {
	if c.gc != nil {
		c.gc = nil
		c.loop.eng.count.open.Add(-1)
		c.loop.load.Add(-1)
		c.place.leave()
	}
	switch c.state {
	case connClosed:
	case connDraining, connLinger:
		c.closed(nil)
	default:
		c.closed(cause(err))
	}
}

// closed makes the one transition into connClosed and queues the notice.
func (c *conn) closed(err error) {
	if c.state == connDialing {
		c.loop.eng.count.dialErrors.Add(1)
	}
	c.become(connClosed)
	c.err = err
	c.loop.Stop(&c.timer)
	c.loop.forget(c)
	c.loop.notices = append(c.loop.notices, c)
	c.loop.turns.left = true
}

// tell tells the stream that all is over.
func (c *conn) tell() {
	if c.stream == nil { // accept refused it or panicked
		return
	}
	defer c.loop.recovered(nil)
	c.stream.OnClose(c.err)
}

// timerFired is the end of a dial's patience, or a step of a drain.
func (c *conn) timerFired() {
	switch c.state {
	case connDialing:
		c.end(syscall.ETIMEDOUT)
	case connDraining:
		c.drained()
	case connLinger:
		c.lingered()
	}
}

// cause reduces an error to io.EOF or the system's error number, if it is one.
func cause(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return io.EOF
	}
	var timeout interface{ Timeout() bool }
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	if errors.As(err, &timeout) && timeout.Timeout() {
		return syscall.ETIMEDOUT
	}
	return err
}
