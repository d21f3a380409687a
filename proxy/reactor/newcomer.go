package reactor

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/proxy/fair"
	"github.com/remora-proxy/remora/proxy/fair/share"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/hello"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// newcomer is an accepted connection that has not said its whole ClientHello. It waits on its
// loop, where it costs a place of the listener, a timer and what it has sent. Then it leaves
// the loop for its handshake, which needs a goroutine. Only the loop accesses its fields.
//
// A newcomer ends once, by end, which closes the socket and uncounts the connection. These lead there:
//
//	method          after                                             counts a TLS failure
//	beginHandshake  the ClientHello is whole: the socket has left     if the handshake can't begin
//	refuse          the input is no ClientHello; sends an alert, and  yes
//	                waits for the peer's end
//	endBroken       the socket has ended or failed                    if a part of a ClientHello had come
//	giveUp          onTimeout: handshakeTimeout is over               unless refused before
//	                onEvicted: another newcomer has the place
type newcomer struct {
	c      *conn // what the connection becomes
	l      *Listener
	source netip.Addr
	until  time.Time   // end of the time for ClientHello and handshake
	place  *fair.Place // until the ClientHello is whole

	descriptor
	state  newcomerState
	reader hello.Reader
	input  []byte // so far
	timer  loop.Timer
}

// newcomers are those of a loop.
type newcomers map[*newcomer]struct{}

// end ends them, each of which removes itself.
func (all newcomers) end() {
	for n := range all {
		n.end()
	}
}

type newcomerState uint8

const (
	newcomerWaiting newcomerState = iota // the rest of the ClientHello is awaited
	newcomerRefused                      // the write side is shut, and the peer's end is awaited
	newcomerLeft                         // closed, or taken over by the handshake
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

// greet makes c, which has its socket, a newcomer on its loop. Its peer is at source.
func (l *Listener) greet(c *conn, source netip.Addr) {
	r := l.reactor
	n := &newcomer{c: c, l: l, source: source, descriptor: c.descriptor, until: time.Now().Add(r.handshakes.timeout)}
	c.fd = -1
	n.timer.Fire = n.onTimeout
	if err := n.watch(n, kernel.Input); err != nil {
		n.descriptor.close()
		l.notArrived(c, err)
		return
	}
	r.connections.offLoop.Add(1)
	n.place = l.newcomers.Take(share.Source{Peer: source}, func() { n.loop.Post(n.onEvicted) })
	n.loop.newcomers[n] = struct{}{}
	n.loop.After(r.handshakes.timeout, &n.timer)
}

// onEvents implements watcher.
func (n *newcomer) onEvents(e kernel.Events) {
	for range maxReads {
		k, errno := kernel.Receive(n.fd, n.loop.input)
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN:
			return
		case errno != 0 || k == 0:
			n.endBroken()
			return
		}
		n.onInput(n.loop.input[:k])
		if n.fd < 0 || k < len(n.loop.input) && !n.unix && e&kernel.All == 0 {
			return
		}
	}
	if n.rewatch() != nil {
		n.endBroken()
	}
}

func (n *newcomer) onInput(b []byte) {
	if n.state != newcomerWaiting {
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
	n.countFailure(err)
	n.input = nil
	response := n.l.opts.Plaintext
	var bad *hello.Error
	if errors.As(err, &bad) {
		response = hello.Alert(bad.Alert)
	}
	if n.write(response) != 0 || n.buffered() > 0 || n.shutdown() != nil {
		n.end()
		return
	}
	n.loop.After(overloadTime, &n.timer)
}

// countFailure counts and logs a TLS failure, unless the reactor is stopping.
func (n *newcomer) countFailure(err error) {
	if n.l.reactor.ctx.Err() == nil {
		n.l.reactor.tls.fail(n.c.remote, err)
	}
}

func (n *newcomer) onTimeout() { n.giveUp(context.DeadlineExceeded) }

// onEvicted ends a newcomer whose place another one has.
func (n *newcomer) onEvicted() { n.giveUp(errSilent) }

// giveUp closes a newcomer that has not left. If it was not refused before, err is counted.
func (n *newcomer) giveUp(err error) {
	if n.state == newcomerLeft {
		return
	}
	if n.state != newcomerRefused {
		n.countFailure(err)
	}
	n.end()
}

// endBroken ends the newcomer after its socket has ended or failed.
func (n *newcomer) endBroken() {
	if n.state == newcomerWaiting && len(n.input) > 0 {
		n.countFailure(errHelloCut) // without input it was a health check
	}
	n.end()
}

// end closes the socket, unless the handshake has it, and uncounts what the newcomer still has.
func (n *newcomer) end() {
	n.become(newcomerLeft)
	n.descriptor.close()
	n.loop.Stop(&n.timer)
	delete(n.loop.newcomers, n)
	n.input = nil
	if n.place != nil {
		n.place.Release()
		n.l.reactor.connections.offLoop.Add(-1)
		n.c.unreserve()
	}
}

// beginHandshake takes the connection off the loop, and starts the handshake on a goroutine.
// A handshake that waits for its peer gives its place to another handshake.
func (n *newcomer) beginHandshake() {
	r := n.l.reactor
	ctx, cancel := context.WithCancelCause(r.ctx)
	slot := r.handshakes.take(n.source, func() { cancel(errBusy) })
	err := errBusy
	if slot != nil {
		err = n.spawnHandshake(ctx, slot, func() { slot.Release(); cancel(nil) })
	}
	if err != nil {
		slot.Release()
		cancel(nil)
		n.countFailure(err)
	}
	n.end()
}

// spawnHandshake starts the handshake in a slot. It then owns the connection, and calls done at its end.
func (n *newcomer) spawnHandshake(ctx context.Context, slot *fair.Place, done func()) error {
	nc, err := n.leave()
	if err != nil {
		return err
	}
	input := n.input
	if !n.l.reactor.spawn(func() { n.handshake(ctx, waiting{nc, slot}, input, done) }) {
		return errors.Join(ErrStopped, nc.Close())
	}
	n.place.Release()
	n.place = nil
	return nil
}

// waiting is the connection of a handshake in a slot, which is idle while it waits for the peer.
type waiting struct {
	net.Conn
	slot *fair.Place
}

// Read implements net.Conn.
func (w waiting) Read(b []byte) (int, error) {
	w.slot.SetIdle(true)
	defer w.slot.SetIdle(false)
	return w.Conn.Read(b)
}

// handshake does the handshake over socket, which has received input, and gives the connection
// back to its loop. It runs on a goroutine, and accesses no field that the loop changes.
func (n *newcomer) handshake(ctx context.Context, socket waiting, input []byte, done func()) {
	r, c, nc := n.l.reactor, n.c, socket.Conn
	var over *secure
	err := r.panics.Guard(func() (err error) {
		if over, err = handshake(ctx, c, n.l.opts.TLS, socket, input, n.until, tls.Server); err == nil {
			over.identify()
		}
		return err
	})
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	} else if err != nil {
		lingerClose(nc) // so that the alert arrives
	}
	done()
	r.connections.offLoop.Add(-1) // the loop counts it from here on
	if err == nil {
		r.tls.succeed(over.tls)
		if over.peer != nil {
			c.reservation.prove()
			r.handshakes.know(n.source)
		}
		c.secure = over
		n.l.deliver(c, nc)
		return
	}
	_ = nc.Close()
	n.countFailure(err)
	c.unreserve()
}
