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

// kernelEnd is the kernel's part of one end of a connection: it sends what the driver has handed over, in segments, and
// receives what the peer's end sends.
type kernelEnd struct {
	conn *conn      // the driver's part
	peer *kernelEnd // nil before the dial reached the listener
	link *link      // towards the peer
	out  pipe       // to the peer

	reset     bool // a reset has arrived
	resetSent bool // the kernel has answered late data with a reset
}

// maxSegment is the maximum length of a segment. With limited bandwidth it is slowSegment,
// so that connections share a link fairly.
const (
	maxSegment  = 64 << 10
	slowSegment = 16 << 10
)

// transmit sends as much as window and bandwidth allow, and the end of file after the last
// byte. It wakes the loop if that waits for room.
func (k *kernelEnd) transmit() {
	if !k.out.dead && !k.out.pumping {
		k.segments()
		k.conn.writable()
	}
}

func (k *kernelEnd) segments() {
	w, p, ln := k.conn.w, &k.out, k.link
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
		n := w.rand.cut(int(min(p.kernel-p.sent, window, limit)), w.Options.Cut)
		if w.rand.chance(ln.path.Reset) {
			k.breakDown()
			return
		}
		p.sent += int64(n)
		departs := ln.occupy(w.clock.now, n)
		p.last = max(p.last, departs+ln.delay(w.rand))
		w.clock.push(event{at: p.last, kind: evArrive, c: k.conn, pos: p.sent})
		if departs > w.clock.now && (p.sent < p.kernel || p.written > p.kernel) {
			p.pumping = true
			w.clock.push(event{at: departs, kind: evPump, c: k.conn})
			return
		}
	}
	if p.fin == finWanted && p.written == p.sent {
		p.fin.become(finSent)
		p.last = max(p.last, w.clock.now+ln.delay(w.rand))
		w.clock.push(event{at: p.last, kind: evFin, c: k.conn, pos: p.sent})
	}
}

// sendFin sends the end of file after the output, once.
func (k *kernelEnd) sendFin() {
	if k.out.fin == finNone {
		k.out.fin.become(finWanted)
		k.transmit()
	}
}

// windowMoved makes k send again after its peer has read, if k waits for that. The window
// update takes as long as a segment.
func (k *kernelEnd) windowMoved() {
	if k.out.blocked && !k.out.pumping {
		k.out.blocked, k.out.pumping = false, true
		k.conn.w.clock.push(event{at: k.conn.w.clock.now + k.peer.link.delay(k.conn.w.rand), kind: evPump, c: k.conn})
	}
}

// close is close(2) on an established connection.
func (k *kernelEnd) close() {
	k.out.truncate(k.out.kernel)
	switch {
	case k.reset || k.out.dead:
		k.out.dead = true
	case k.peer.out.unread() > 0:
		k.sendReset()
	default:
		k.sendFin()
	}
}

// sendReset aborts the connection: unsent output is lost, segments on their way arrive.
func (k *kernelEnd) sendReset() {
	k.out.truncate(k.out.sent)
	k.out.last = max(k.out.last, k.conn.w.clock.now+k.link.delay(k.conn.w.rand))
	k.resetSent = true
	k.conn.w.clock.push(event{at: k.out.last, kind: evReset, c: k.peer.conn})
}

// breakDown resets both ends from the network. Segments on their way are lost.
func (k *kernelEnd) breakDown() {
	for _, end := range [2]*kernelEnd{k, k.peer} {
		if end.out.dead {
			continue
		}
		end.out.dead = true
		k.conn.w.clock.push(event{at: k.conn.w.clock.now + end.link.delay(k.conn.w.rand), kind: evReset, c: end.conn})
	}
}

// deliver processes an event in the receiving kernel.
func (n *Network) deliver(e *event) {
	c := e.c
	switch e.kind {
	case evSyn:
		n.handshake(c)
	case evRefuse:
		c.dialOutcome(errRefused)
	case evOpen:
		c.established()
	case evReset:
		c.end.out.dead, c.end.reset = true, true
		if c.end.peer != nil {
			c.end.resetIn(&c.end.peer.out)
		}
		c.established()
		c.ready()
	case evArrive, evFin:
		out, peer := &c.end.out, c.end.peer
		if out.dead || peer.conn.state == stateGone && peer.conn.loop.host.down {
			return
		}
		out.arrived = max(out.arrived, e.pos)
		if e.kind == evFin {
			out.fin.become(finArrived)
		}
		peer.input(e.kind == evFin)
	}
}

// resetIn applies a reset to k's input. The reset arrives after all bytes sent before it,
// even if they are due at the same time. Unread input is lost or kept as a whole, since a
// poller may report either event first.
func (k *kernelEnd) resetIn(in *pipe) {
	if !in.dead {
		in.arrived = in.sent
	}
	if k.conn.w.rand.IntN(2) == 0 {
		in.drop()
	}
}

// input processes the arrival of bytes or of the end of file at k.
func (k *kernelEnd) input(fin bool) {
	switch k.conn.state {
	case stateClosed, stateGone:
		k.peer.out.drop()
		k.peer.windowMoved()
		if !fin && !k.resetSent {
			k.sendReset()
		}
	default:
		k.conn.established() // the segment has overtaken a delayed handshake
		if !k.conn.paused {
			k.conn.ready()
		}
	}
}
