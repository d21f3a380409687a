package sim

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"syscall"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// The errors for OnClose, the same as those of the system. errTimeout has a method Timeout
// that returns true, as net.Error wants it.
var (
	errReset   error = syscall.ECONNRESET
	errRefused error = syscall.ECONNREFUSED
	errTimeout error = syscall.ETIMEDOUT
)

// lingerTime is how long a drained connection waits for the peer's end of file.
const lingerTime = time.Second

// connState is the state of a connection as the core sees it.
type connState uint8

const (
	stateDialing  connState = iota // neither OnOpen nor OnClose was called
	stateOpening                   // established in the kernel, before OnOpen
	stateOpen                      // after OnOpen
	stateDraining                  // after Drain
	stateClosed                    // OnClose was called or is queued; the kernel may still send
	stateGone                      // its process or host has crashed: OnClose is not called
	stateDetached                  // it has left the loop and belongs to a Socket
)

// connEdges has the transitions that become accepts, by the state before.
var connEdges = [...][7]bool{
	stateDialing:  {stateOpening: true, stateClosed: true, stateGone: true},
	stateOpening:  {stateOpen: true, stateGone: true},
	stateOpen:     {stateDraining: true, stateClosed: true, stateGone: true, stateDetached: true},
	stateDraining: {stateClosed: true, stateGone: true},
	stateClosed:   {stateGone: true}, // before OnClose
	stateGone:     {},
	stateDetached: {stateClosed: true, stateGone: true},
}

// conn is the driver's part of one end of a connection, as the core sees it.
type conn struct {
	w        *World
	loop     *Loop
	receiver loop.Receiver
	accept   func() loop.Receiver // of an inbound connection, until it has made receiver
	end      kernelEnd
	addr     string // dialled
	remote   string
	id       uint32

	left int         // most bytes that may be buffered when then is deferred
	then *loop.Flush // what AwaitRoom was given; nil means that nothing is awaited

	original netip.AddrPort // the address of a dial that was redirected

	index int // in loop.conns
	state connState

	queued   bool  // in loop.due
	paused   bool  // by PauseReading: input is not read
	half     bool  // by HalfClose: the end of file follows the output
	ended    bool  // the receiver stays after the peer's end
	shut     bool  // write side shut, after Drain
	lingered bool  // lingerTime has passed
	err      error // for OnClose, or the failure of a dial that the loop has not processed
}

// become is the only place that changes the state. A transition that is not legal is a
// fault of this package.
func (c *conn) become(next connState) {
	if !connEdges[c.state][next] {
		panic(fmt.Sprintf("sim: a connection can't go from state %d to %d", c.state, next))
	}
	c.state = next
}

// Write implements loop.Conn.
func (c *conn) Write(b []byte) {
	c.loop.check("Conn.Write")
	if c.state != stateOpen || c.half || len(b) == 0 {
		return
	}
	if c.end.reset {
		c.finish(errReset)
		return
	}
	c.end.out.append(b)
	c.flush()
}

// WriteParts implements loop.Conn.
func (c *conn) WriteParts(parts [][]byte) { c.Write(bytes.Join(parts, nil)) }

// Buffered implements loop.Conn.
func (c *conn) Buffered() int {
	c.loop.check("Conn.Buffered")
	return int(c.end.out.written - c.end.out.kernel)
}

// HasInput implements loop.Conn.
func (c *conn) HasInput() bool {
	c.loop.check("Conn.HasInput")
	if c.state != stateOpen || c.ended {
		return false
	}
	in := &c.end.peer.out
	return in.unread() > 0 || in.fin == finArrived || c.end.reset
}

// AwaitRoom implements loop.Conn.
func (c *conn) AwaitRoom(left int, f *loop.Flush) {
	c.loop.check("Conn.AwaitRoom")
	switch {
	case c.state != stateOpen:
	case c.Buffered() <= left:
		panic("sim: AwaitRoom called while there is room")
	default:
		c.left, c.then = left, f
	}
}

// Close implements loop.Conn.
func (c *conn) Close() {
	c.loop.check("Conn.Close")
	if c.state == stateOpen || c.state == stateDraining {
		c.finish(nil)
	}
}

// Abort closes c with a reset, as a process does whose socket has SO_LINGER 0: its peer can't take that for a
// half-close. The connection is one of a World, and open.
func Abort(open loop.Conn) {
	c := open.(*conn)
	c.end.sendReset()
	c.end.reset = true
	c.Close()
}

// Drain implements loop.Conn.
func (c *conn) Drain() {
	c.loop.check("Conn.Drain")
	if c.state == stateOpen {
		c.then = nil
		c.become(stateDraining)
		c.ready()
	}
}

// Finish implements loop.Conn.
func (c *conn) Finish() { c.Drain() }

// RemoteAddr implements loop.Conn.
func (c *conn) RemoteAddr() string { return c.remote }

// OriginalDst implements loop.Conn.
func (c *conn) OriginalDst() netip.AddrPort { return c.original }

// Protocol implements loop.Conn. There is no TLS in a World.
func (c *conn) Protocol() string { return "" }

// SetReceiver implements loop.Conn.
func (c *conn) SetReceiver(r loop.Receiver) {
	c.loop.check("Conn.SetReceiver")
	c.receiver = r
}

// ready adds c to the next turn of its loop.
func (c *conn) ready() {
	if c.queued || c.state >= stateClosed {
		return
	}
	c.queued = true
	c.loop.due = append(c.loop.due, c)
	c.loop.need(c.w.clock.now)
}

// service is c's part of a turn: the work of a real driver when a connection is readable or
// writable.
func (c *conn) service() {
	switch c.state {
	case stateDialing:
		if c.err != nil {
			c.finish(c.err)
		}
	case stateOpening:
		c.open()
		if c.w.rand.IntN(2) == 0 {
			c.ready()
			return
		}
		c.service()
	case stateOpen:
		c.serviceOpen()
	case stateDraining:
		c.serviceDraining()
	}
}

func (c *conn) open() {
	c.become(stateOpen)
	c.w.trace.note(evkOpen, c.loop, c, 0)
	c.loop.enter()
	if c.accept != nil {
		c.receiver, c.accept = c.accept(), nil
	}
	c.receiver.OnOpen(c)
	c.loop.leave()
}

func (c *conn) serviceOpen() {
	if c.end.out.written > c.end.out.kernel {
		c.flush()
	}
	c.shutHalf()
	in := &c.end.peer.out
	if unread := in.unread(); unread > 0 && !c.paused {
		c.read(in, unread)
		if c.state != stateOpen {
			return
		}
	}
	switch {
	case in.unread() > 0:
		if !c.paused {
			c.ready()
		}
	case c.end.reset:
		c.finish(errReset)
	case in.ended() && !c.paused && !c.ended:
		if !c.stays() {
			c.finish(io.EOF)
		}
	}
}

// stays tells the receiver of the peer's end, and reports whether c stays open.
func (c *conn) stays() bool {
	s, ok := c.receiver.(loop.HalfCloser)
	if !ok {
		return false
	}
	c.ended = true
	c.loop.enter()
	defer c.loop.leave()
	return s.OnEnd()
}

// read delivers some of the bytes that have arrived.
func (c *conn) read(in *pipe, unread int64) {
	n := c.w.rand.cut(int(min(unread, int64(c.w.Options.ReadSize))), c.w.Options.Cut)
	b := c.room(n)
	own := b == nil
	if own {
		b = c.w.input.take(n)
	}
	in.take(b)
	c.end.peer.windowMoved()
	c.w.trace.note(evkData, c.loop, c, len(b))
	c.loop.enter()
	c.receiver.OnData(b)
	c.loop.leave()
	if own {
		poison(b)
	}
}

// room returns the receiver's memory for a read of at most n bytes, or nil if it has none.
func (c *conn) room(n int) []byte {
	if r, ok := c.receiver.(loop.Roomy); ok {
		if room := r.Room(); len(room) > 0 {
			return room[:min(n, len(room))]
		}
	}
	return nil
}

func (c *conn) serviceDraining() {
	c.flush()
	in := &c.end.peer.out
	if !c.paused && in.unread() > 0 {
		in.drop()
		c.end.peer.windowMoved()
	}
	if !c.shut && c.end.out.written == c.end.out.kernel {
		c.shut = true
		c.end.sendFin()
		c.w.clock.push(event{at: c.w.clock.now + lingerTime, kind: evLinger, c: c})
	}
	if c.end.reset || c.lingered || c.shut && in.ended() {
		c.finish(nil)
	}
}

// flush moves output from the driver's buffer to the kernel, as far as it has room.
func (c *conn) flush() {
	c.end.out.accept(c.w.Options.SendBuffer)
	if c.then != nil && int(c.end.out.written-c.end.out.kernel) <= c.left {
		c.loop.flushes.Add(c.then)
		c.then = nil
	}
	c.end.transmit()
}

// writable makes the loop flush again if there is output and room for it.
func (c *conn) writable() {
	if c.end.out.written > c.end.out.kernel && c.end.out.room(c.w.Options.SendBuffer) {
		c.ready()
	}
}

// finish closes c with err as close(2) does, and queues OnClose. With unread input it is a
// reset, which destroys output that the peer has not read.
func (c *conn) finish(err error) {
	established := c.end.peer != nil && c.state != stateDialing
	c.become(stateClosed)
	c.err = err
	c.loop.closed = append(c.loop.closed, c)
	if established {
		c.end.close()
	} else if c.end.peer != nil {
		c.end.sendReset() // ends a handshake in progress
	}
}

// notify calls OnClose.
func (c *conn) notify() {
	c.loop.remove(c)
	c.w.trace.note(evkClose, c.loop, c, 0)
	c.loop.enter()
	c.receiver.OnClose(c.err)
	c.loop.leave()
}
