package sim

import "time"

// finState is how far the end of a byte stream has come.
type finState uint8

const (
	finNone    finState = iota
	finWanted           // to be sent after the last byte
	finSent             // on its way
	finArrived          // in the receiver's kernel
)

// pipe is one direction of a connection. Its marks are positions in the byte
// stream: read <= arrived <= sent <= kernel <= written. Between read and arrived
// lies the receiver's unread input, up to sent what is on its way, up to kernel
// the sender's socket buffer, up to written what the driver still holds.
type pipe struct {
	buf  []byte // buf[head:] are the bytes from read to written
	head int

	read, arrived, sent, kernel, written int64

	last    time.Duration // arrival of the latest segment: none may overtake it
	fin     finState
	pumping bool // an evPump is queued
	blocked bool // waits for the receiver to read
	dead    bool // reset: nothing that is on its way arrives
}

func (p *pipe) append(b []byte) {
	if p.head > 0 && len(p.buf)+len(b) > cap(p.buf) {
		p.buf = p.buf[:copy(p.buf, p.buf[p.head:])]
		p.head = 0
	}
	p.buf = append(p.buf, b...)
	p.written += int64(len(b))
}

// accept is the kernel taking as much as a buffer of the given size has room for.
func (p *pipe) accept(size int) {
	p.kernel = max(p.kernel, min(p.written, p.sent+int64(size)))
}

func (p *pipe) room(size int) bool { return p.kernel < p.sent+int64(size) }

func (p *pipe) unread() int64 { return p.arrived - p.read }

// ended tells whether the receiver has read all there will ever be.
func (p *pipe) ended() bool { return p.fin == finArrived && p.read == p.arrived }

// take reads len(b) bytes that have arrived.
func (p *pipe) take(b []byte) {
	copy(b, p.buf[p.head:])
	p.skip(int64(len(b)))
}

// drop reads and forgets all that has arrived.
func (p *pipe) drop() { p.skip(p.unread()) }

func (p *pipe) skip(n int64) {
	p.read += n
	p.head += int(n)
	if p.head == len(p.buf) {
		p.buf, p.head = p.buf[:0], 0
	}
}

// truncate forgets what lies behind the stream position to.
func (p *pipe) truncate(to int64) {
	p.buf = p.buf[:len(p.buf)-int(p.written-to)]
	p.written = to
	p.kernel = min(p.kernel, to)
}

// maxSegment is the most that travels as one, unless bandwidth is limited;
// then slowSegment is, so that connections share a link fairly.
const (
	maxSegment  = 64 << 10
	slowSegment = 16 << 10
)

// transmit sends what window and bandwidth allow, and the end of file after it,
// and wakes the loop if it waits for room.
func (c *conn) transmit() {
	if !c.out.dead && !c.out.pumping {
		c.segments()
		c.writable()
	}
}

func (c *conn) segments() {
	w, p, ln := c.w, &c.out, c.link
	for p.sent < p.kernel {
		window := int64(w.Options.ReceiveBuffer) - (p.sent - p.read)
		if window <= 0 {
			p.blocked = true
			return
		}
		limit := int64(maxSegment)
		if ln.path.Bandwidth > 0 {
			limit = slowSegment
		}
		n := w.cut(int(min(p.kernel-p.sent, window, limit)))
		if w.chance(ln.path.Reset) {
			c.breakDown()
			return
		}
		p.sent += int64(n)
		departs := ln.occupy(w.now, n)
		p.last = max(p.last, departs+ln.delay(w))
		w.push(event{at: p.last, kind: evArrive, c: c, pos: p.sent})
		if departs > w.now && (p.sent < p.kernel || p.written > p.kernel) {
			p.pumping = true
			w.push(event{at: departs, kind: evPump, c: c})
			return
		}
	}
	if p.fin == finWanted && p.written == p.sent {
		p.fin = finSent
		p.last = max(p.last, w.now+ln.delay(w))
		w.push(event{at: p.last, kind: evFin, c: c, pos: p.sent})
	}
}

// windowMoved tells c that its peer has read. The news takes as long as a
// segment, but only a sender that waits for it needs to be told.
func (c *conn) windowMoved() {
	if c.out.blocked && !c.out.pumping {
		c.out.blocked, c.out.pumping = false, true
		c.w.push(event{at: c.w.now + c.peer.link.delay(c.w), kind: evPump, c: c})
	}
}

// closeKernel is close(2) on an established connection.
func (c *conn) closeKernel() {
	c.out.truncate(c.out.kernel)
	switch {
	case c.reset || c.out.dead:
		c.out.dead = true
	case c.peer.out.unread() > 0:
		c.sendReset()
	case c.out.fin == finNone:
		c.out.fin = finWanted
		c.transmit()
	}
}

// sendReset aborts: what c has not sent is lost, what is on its way is not.
func (c *conn) sendReset() {
	c.out.truncate(c.out.sent)
	c.out.last = max(c.out.last, c.w.now+c.link.delay(c.w))
	c.resetSent = true
	c.w.push(event{at: c.out.last, kind: evReset, c: c.peer})
}

// breakDown resets both ends from the middle; what is on its way is lost.
func (c *conn) breakDown() {
	for _, end := range [2]*conn{c, c.peer} {
		if end.out.dead {
			continue
		}
		end.out.dead = true
		c.w.push(event{at: c.w.now + end.link.delay(c.w), kind: evReset, c: end})
	}
}

// deliver is the receiving kernel's part.
func (w *World) deliver(e *event) {
	c := e.c
	switch e.kind {
	case evSyn:
		w.handshake(c)
	case evRefuse:
		c.dialOutcome(errRefused)
	case evOpen:
		c.established()
	case evReset:
		c.out.dead, c.reset = true, true
		if c.peer != nil {
			c.resetIn(&c.peer.out)
		}
		c.established()
		c.ready()
	case evArrive, evFin:
		if c.out.dead || c.peer.state == stateGone && c.peer.loop.host.down {
			return
		}
		c.out.arrived = max(c.out.arrived, e.pos)
		if e.kind == evFin {
			c.out.fin = finArrived
		}
		c.peer.input(e.kind == evFin)
	}
}

// resetIn is what a reset does to c's input. It comes behind all that was sent before
// it, also where that is due at the same time. Unread input is lost, all of it, or
// none: a poller may see either first.
func (c *conn) resetIn(in *pipe) {
	if !in.dead {
		in.arrived = in.sent
	}
	if c.w.rand.IntN(2) == 0 {
		in.drop()
	}
}

// input answers the arrival of bytes or of the end of file at c.
func (c *conn) input(fin bool) {
	switch c.state {
	case stateClosed, stateGone:
		c.peer.out.drop()
		c.peer.windowMoved()
		if !fin && !c.resetSent {
			c.sendReset()
		}
	default:
		c.established() // a held handshake was overtaken
		if !c.held {
			c.ready()
		}
	}
}
