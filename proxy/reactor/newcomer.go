package reactor

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/proxy/fair"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/hello"
)

// newcomer is an accepted connection that has not said its whole ClientHello. It waits on its
// loop, where it costs a place of the listener, a timer and what it has sent. Then it leaves
// the loop for its handshake, which needs a goroutine. Only the loop accesses its fields.
type newcomer struct {
	c      *conn // what the connection becomes
	l      *Listener
	source net.Addr
	until  time.Time   // end of the time for ClientHello and handshake
	place  *fair.Place // until the ClientHello is whole

	state   newcomerState
	arrived bool      // gnet has called OnOpen
	gc      gnet.Conn // nil before gnet's OnOpen and from its OnClose on
	reader  hello.Reader
	input   []byte // so far
	timer   loop.Timer
}

type newcomerState uint8

const (
	newcomerArriving newcomerState = iota // on its way to the loop
	newcomerWaiting                       // the rest of the ClientHello is awaited
	newcomerRefused                       // the write side is shut, and the peer's end is awaited
	newcomerLeft                          // closed, or taken over by the handshake
)

// become changes the state, which only moves down the list.
func (n *newcomer) become(next newcomerState) {
	if next <= n.state {
		panic("reactor: illegal change of a newcomer's state")
	}
	n.state = next
}

// maxNewcomers limits the newcomers of a listener. Beyond it the oldest gives way.
const maxNewcomers = 1024

// placesFor returns the number of newcomers of a listener with these limits of connections, of
// which 0 means none. Half of each stays for connections that have said their ClientHello.
func placesFor(limits ...int64) int {
	places := int64(maxNewcomers)
	for _, limit := range limits {
		if limit > 0 {
			places = min(places, max(limit/2, 1))
		}
	}
	return int(places)
}

// greet gives nc, accepted for c, to its loop as a newcomer; false if that is impossible.
func (l *Listener) greet(c *conn, nc net.Conn) bool {
	e := l.eng
	n := &newcomer{c: c, l: l, source: c.sourceOf(nc), until: time.Now().Add(e.handshakeTimeout)}
	n.timer.Fire = n.timedOut
	n.place = l.newcomers.Take(fair.SourceOf(n.source), func() { c.loop.Post(n.onEvicted) })
	e.count.outside.Add(1)
	if e.spawn(func() { n.enroll(nc) }) {
		return true
	}
	n.place.Release()
	e.count.outside.Add(-1)
	return false
}

func (n *newcomer) enroll(nc net.Conn) {
	if err := n.c.loop.enroll(nc, n, &n.arrived); err != nil {
		n.l.notEnrolled(n.c, err)
		n.lost()
	}
}

// lost uncounts the connection, which has ended.
func (n *newcomer) lost() {
	n.place.Release()
	n.l.eng.count.outside.Add(-1)
	n.c.lost()
}

func (n *newcomer) onOpen(gc gnet.Conn) {
	n.arrived = true
	n.gc = gc
	if n.state == newcomerLeft {
		n.close()
		return
	}
	n.become(newcomerWaiting)
	n.c.loop.After(time.Until(n.until), &n.timer)
}

func (n *newcomer) onInput(b []byte) {
	if n.state != newcomerWaiting || len(b) == 0 {
		return
	}
	whole, err := n.reader.Feed(b)
	if err != nil {
		n.refuse(err)
		return
	}
	n.input = append(n.input, b...)
	if whole {
		n.beginHandshake()
	}
}

// refuse counts a failure, sends the alert for it or Plaintext, and waits for the peer's end so
// that it arrives.
func (n *newcomer) refuse(err error) {
	n.become(newcomerRefused)
	n.fail(err)
	n.input = nil
	var bad *hello.Error
	switch { // an error of a Write has called onClose
	case errors.As(err, &bad):
		_, _ = n.gc.Write(hello.Alert(bad.Alert))
	case len(n.l.opts.Plaintext) > 0:
		_, _ = n.gc.Write(n.l.opts.Plaintext)
	}
	if n.gc == nil {
		return
	}
	if unix.Shutdown(n.gc.Fd(), unix.SHUT_WR) != nil {
		n.close()
		return
	}
	n.c.loop.After(overloadTime, &n.timer)
}

// fail counts and logs a TLS failure, unless the engine is stopping.
func (n *newcomer) fail(err error) {
	if n.l.eng.ctx.Err() == nil {
		n.l.eng.tlsFailed(n.c.remote, err)
	}
}

func (n *newcomer) timedOut() { n.giveUp(context.DeadlineExceeded) }

// onEvicted ends a newcomer whose place another one has.
func (n *newcomer) onEvicted() { n.giveUp(errSilent) }

// giveUp closes a newcomer that has not left. If it was not refused before, err is counted.
func (n *newcomer) giveUp(err error) {
	if n.state == newcomerLeft {
		return
	}
	if n.state != newcomerRefused {
		n.fail(err)
	}
	n.become(newcomerLeft)
	n.close()
}

// close closes the socket, if it has arrived.
func (n *newcomer) close() {
	if n.gc != nil {
		_ = n.c.loop.el.Close(n.gc) // calls onClose
	}
}

// onClose receives the end of the socket, whoever has closed it.
func (n *newcomer) onClose() {
	n.gc = nil
	n.c.loop.Stop(&n.timer)
	if n.state == newcomerWaiting && len(n.input) > 0 {
		n.fail(errHelloCut) // without input it was a health check
	}
	if n.state != newcomerLeft {
		n.become(newcomerLeft)
	}
	n.input = nil
	if n.place != nil {
		n.lost()
	}
}

// beginHandshake takes the connection from gnet, as Detach does, and starts the handshake on a
// goroutine. Handshakes are divided fairly, too. But none in progress gives way to one of its
// own source: if the CPU is what they wait for, none would ever end.
func (n *newcomer) beginHandshake() {
	e := n.l.eng
	ctx, cancel := context.WithCancelCause(e.ctx)
	slot := e.handshakes.Take(fair.SourceOf(n.source), func() { cancel(errBusy) })
	err := errBusy
	if slot != nil {
		err = n.handOff(ctx, func() { slot.Release(); cancel(nil) })
	}
	if err != nil {
		slot.Release()
		cancel(nil)
		n.fail(err)
	}
	n.become(newcomerLeft)
	n.close()
}

// handOff starts the handshake, which then owns the connection and calls done at its end.
func (n *newcomer) handOff(ctx context.Context, done func()) error {
	nc, err := duplicate(n.gc)
	if err != nil {
		return err
	}
	input := n.input
	if !n.l.eng.spawn(func() { n.handshake(ctx, nc, input, done) }) {
		return errors.Join(ErrStopped, nc.Close())
	}
	n.place.Release()
	n.place = nil
	return nil
}

// handshake does the handshake over nc, which has received input, and gives the connection
// back to its loop. It runs on a goroutine, and accesses no field that the loop changes.
func (n *newcomer) handshake(ctx context.Context, nc net.Conn, input []byte, done func()) {
	e, c := n.l.eng, n.c
	err := c.handshake(ctx, nc, input, n.until, tls.Server)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	} else if err != nil {
		lingerClose(nc) // so that the alert arrives
	}
	done()
	e.count.outside.Add(-1) // the loop counts it from here on
	if err == nil {
		c.secure.identify()
		e.countHandshake(c.secure.tls)
		if c.secure.peer != nil {
			c.reservation.prove()
		}
		if !n.l.enroll(c, nc) {
			c.lost()
		}
		return
	}
	_ = nc.Close()
	n.fail(err)
	c.lost()
}
