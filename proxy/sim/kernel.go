package sim

import "time"

// finState is the progress of the end of a byte stream.
type finState uint8

const (
	finNone    finState = iota
	finWanted           // must be sent after the last byte
	finSent             // on its way
	finArrived          // in the receiver's kernel
)

// become is the only place that changes a finState, which goes through all of them in turn.
func (f *finState) become(next finState) {
	if next != *f+1 {
		panic("sim: illegal change of the end of a stream")
	}
	*f = next
}

// pipe is one direction of a connection. Its positions in the byte stream are
// read <= arrived <= sent <= kernel <= written. The bytes between two of them are, in this
// order: unread input of the receiver, segments on their way, the sender's socket buffer,
// and the buffer of the sender's driver.
type pipe struct {
	buf  []byte // buf[head:] are the bytes from read to written
	head int

	read, arrived, sent, kernel, written int64

	last    time.Duration // arrival of the latest segment; later ones arrive after it
	fin     finState
	pumping bool // an evPump is queued
	blocked bool // waits for the receiver to read
	dead    bool // after a reset: segments on their way don't arrive
}

func (p *pipe) append(b []byte) {
	if p.head > 0 && len(p.buf)+len(b) > cap(p.buf) {
		p.buf = p.buf[:copy(p.buf, p.buf[p.head:])]
		p.head = 0
	}
	p.buf = append(p.buf, b...)
	p.written += int64(len(b))
}

// accept moves output into a kernel buffer of the given size, as far as it has room.
func (p *pipe) accept(size int) {
	p.kernel = max(p.kernel, min(p.written, p.sent+int64(size)))
}

func (p *pipe) room(size int) bool { return p.kernel < p.sent+int64(size) }

func (p *pipe) unread() int64 { return p.arrived - p.read }

// ended reports whether the receiver has read the whole stream.
func (p *pipe) ended() bool { return p.fin == finArrived && p.read == p.arrived }

// take reads len(b) bytes that have arrived.
func (p *pipe) take(b []byte) {
	copy(b, p.buf[p.head:])
	p.skip(int64(len(b)))
}

// drop discards all bytes that have arrived.
func (p *pipe) drop() { p.skip(p.unread()) }

func (p *pipe) skip(n int64) {
	p.read += n
	p.head += int(n)
	if p.head == len(p.buf) {
		p.buf, p.head = p.buf[:0], 0
	}
}

// truncate discards the bytes after the stream position to.
func (p *pipe) truncate(to int64) {
	p.buf = p.buf[:len(p.buf)-int(p.written-to)]
	p.written = to
	p.kernel = min(p.kernel, to)
}

// maxSegment is the maximum length of a segment. With limited bandwidth it is slowSegment,
// so that connections share a link fairly.
const (
	maxSegment  = 64 << 10
	slowSegment = 16 << 10
)

// transmit sends as much as window and bandwidth allow, and the end of file after the last
// byte. It wakes the loop if that waits for room.
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
		p.fin.become(finSent)
		p.last = max(p.last, w.now+ln.delay(w))
		w.push(event{at: p.last, kind: evFin, c: c, pos: p.sent})
	}
}

// sendFin sends the end of file after the output, once.
func (c *conn) sendFin() {
	if c.out.fin == finNone {
		c.out.fin.become(finWanted)
		c.transmit()
	}
}

// windowMoved makes c send again after its peer has read, if c waits for that. The window
// update takes as long as a segment.
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
	default:
		c.sendFin()
	}
}

// sendReset aborts the connection: unsent output is lost, segments on their way arrive.
func (c *conn) sendReset() {
	c.out.truncate(c.out.sent)
	c.out.last = max(c.out.last, c.w.now+c.link.delay(c.w))
	c.resetSent = true
	c.w.push(event{at: c.out.last, kind: evReset, c: c.peer})
}

// breakDown resets both ends from the network. Segments on their way are lost.
func (c *conn) breakDown() {
	for _, end := range [2]*conn{c, c.peer} {
		if end.out.dead {
			continue
		}
		end.out.dead = true
		c.w.push(event{at: c.w.now + end.link.delay(c.w), kind: evReset, c: end})
	}
}

// deliver processes an event in the receiving kernel.
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
			c.out.fin.become(finArrived)
		}
		c.peer.input(e.kind == evFin)
	}
}

// resetIn applies a reset to c's input. The reset arrives after all bytes sent before it,
// even if they are due at the same time. Unread input is lost or kept as a whole, since a
// poller may report either event first.
func (c *conn) resetIn(in *pipe) {
	if !in.dead {
		in.arrived = in.sent
	}
	if c.w.rand.IntN(2) == 0 {
		in.drop()
	}
}

// input processes the arrival of bytes or of the end of file at c.
func (c *conn) input(fin bool) {
	switch c.state {
	case stateClosed, stateGone:
		c.peer.out.drop()
		c.peer.windowMoved()
		if !fin && !c.resetSent {
			c.sendReset()
		}
	default:
		c.established() // the segment has overtaken a delayed handshake
		if !c.paused {
			c.ready()
		}
	}
}
