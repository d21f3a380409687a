package reactor

import (
	"io"
	"net"
	"net/netip"
	"syscall"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// conn passes the events of one socket to its receiver, and the output of the receiver to the socket.
//
//	Dial            connDialing ──connected──┐
//	                                         ├──▶ connOpen ──Drain──▶ connDraining ──all is sent──▶ connLinger
//	accept, move    connArriving ──arrived───┘
//
// Every state leads to connClosed, by end and nothing else: it closes the socket, uncounts the connection, and
// has OnClose called at the end of the turn. These lead to end, or do a part of it:
//
//	called by    method            what it does
//	the receiver Close             sends close_notify, unless output is left, and ends
//	             Finish, Drain     end when all output is sent, see drain
//	             Detach            makes a Socket of the socket, and ends: end has none to close
//	the loop     endBroken         ends, since the socket has ended or failed
//	             endAfterInput     likewise, but passes on first what the peer had sent
//	             failWrite         one of the two, after a write that failed
//	             dial.onTimeout    ends a dial that takes too long
//	             end               after a failure of a dial or of TLS, at the end of a drain, after a panic, by Stop
//	             move              gives the socket to another loop, and ends: end has none to close
//	end          descriptor.close  closes the socket; alone, that of a connection that does not become open
//	             unreserve         uncounts the connection in limits and loads; alone, likewise
type conn struct {
	descriptor
	receiver    loop.Receiver // set on arrival, for an inbound one
	listener    *Listener     // has accepted it; nil for a dialled one
	remote      string
	peer        net.Addr // who an accepted peer is; nil means the address of the connection
	slot        int      // index in eventLoop.conns
	state       connState
	reservation reservation // of an open connection, until it is closed or detached
	countedOn   *eventLoop  // in whose load it counts until then

	inputIn   uint32 // moving.window when it last had input while connections moved
	movedWith int    // what Movable.MoveOut returned on the loop before, for Movable.MoveIn

	eof     bool // the kernel has no more input; some may still be decrypted
	toldEnd bool // the receiver was told of the end of the input

	err error // argument of Receiver.OnClose; of an open connection that of a write that has failed

	secure     *secure      // nil means plain text
	redirected *redirection // nil for most
	dial       *dialing     // nil for an accepted one, and once it is open
	drain      *drain       // nil before Drain
}

type connState uint8

const (
	connDialing  connState = iota // outbound, not connected yet, or on its way to the loop
	connArriving                  // inbound, on its way to the loop
	connOpen                      // both directions in use
	connDraining                  // Drain was called, and output is left to send
	connLinger                    // the write side is shut after Drain; the peer's end is awaited
	connClosed                    // no socket; OnClose was called, or will be at the end of the turn
)

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
	if c.state != connOpen || c.err != nil || len(b) == 0 {
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
	case c.state != connOpen, c.err != nil:
	case c.secure != nil:
		c.secure.writeParts(parts)
	default:
		if errno := c.descriptor.writeParts(parts); errno != 0 {
			_ = c.failWrite(errno)
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

// SetReceiver implements loop.Conn.
func (c *conn) SetReceiver(r loop.Receiver) { c.receiver = r }

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
		c.loop.conns.add(c)
	}
	c.open()
	return nil
}

// open tells the receiver that the connection is established.
func (c *conn) open() {
	c.loop.reactor.connections.open.Add(1)
	if c.state == connDialing {
		c.loop.reactor.count.dialled.Add(1)
		c.loop.Stop(&c.dial.timer)
		c.dial = nil
	}
	c.become(connOpen)
	c.callOnOpen()
}

func (c *conn) callOnOpen() {
	defer c.loop.recovered(c)
	if c.listener != nil {
		c.receiver = c.listener.accept(c.loop, c.remote)
		if c.receiver == nil {
			c.end(nil)
			return
		}
	}
	c.receiver.OnOpen(c)
	if s, ok := c.receiver.(loop.Movable); ok && c.movedWith > 0 {
		s.MoveIn(c.movedWith)
	}
	if c.secure != nil && c.state == connOpen {
		c.secure.trust.begin()
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

// end closes the connection in any state but connClosed. OnClose follows at the turn's end.
func (c *conn) end(err error) {
	l := c.loop
	if c.state > connDialing {
		l.reactor.connections.open.Add(-1)
	} else {
		l.reactor.count.dialErrors.Add(1)
	}
	c.unreserve() // a dial without a socket has reserved nothing
	c.become(connClosed)
	c.err = err
	if c.dial != nil {
		l.Stop(&c.dial.timer)
	}
	if c.drain != nil {
		l.Stop(&c.drain.timer)
	}
	if c.secure != nil {
		c.secure.trust.stop()
	}
	l.conns.remove(c)
	l.closed = append(l.closed, c)
	c.descriptor.close()
}

// endBroken ends the connection after its socket has ended or failed.
func (c *conn) endBroken(err error) {
	switch {
	case c.state == connDraining || c.state == connLinger:
		err = nil
	case err == io.EOF && c.secure != nil:
		err = errTruncated
	}
	c.end(err)
}

// unreserve uncounts the connection in its limits, and in the load of a loop.
func (c *conn) unreserve() {
	if c.countedOn != nil {
		c.countedOn.load.Add(-1)
		c.countedOn = nil
	}
	c.reservation.release()
}

func (c *conn) callOnClose() {
	if c.receiver == nil { // accept returned nil or panicked
		return
	}
	defer c.loop.recovered(nil)
	c.receiver.OnClose(c.err)
}

// writeSocket sends b, or keeps what the kernel does not take. An error has closed the connection. After failWrite it drops b.
func (c *conn) writeSocket(b []byte) error {
	if c.fd < 0 {
		return net.ErrClosed
	}
	if c.err != nil {
		return nil
	}
	if errno := c.descriptor.write(b); errno != 0 {
		return c.failWrite(errno)
	}
	return nil
}

// failWrite ends the connection after a write that failed, and returns errno. If the peer has gone, it returns nil: the next
// event ends the connection, after the input that is left. One byte of output is kept for that event.
func (c *conn) failWrite(errno syscall.Errno) error {
	if kernel.Gone(c.fd) && c.keep([]byte{0}) == 0 {
		c.err = errno
		return nil
	}
	c.endBroken(errno)
	return errno
}
