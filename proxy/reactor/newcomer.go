package reactor

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/proxy/fair"
	"github.com/remora-proxy/remora/proxy/fair/share"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/hello"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// newcomer is an accepted connection whose TLS handshake has not ended. It waits on its loop for the whole
// ClientHello, where it costs a place of the listener, a timer and what it has sent. Then the handshake begins
// on a goroutine, see flights, and the socket stays on the loop. Only the loop accesses its fields, but for those
// that never change.
//
// A newcomer becomes a connection by arrive, or ends once, by end, which closes the socket and uncounts the
// connection. These lead there:
//
//	method          after                                                   counts a TLS failure
//	beginHandshake  the ClientHello is whole, but no handshake can begin    yes
//	refuse          the input is no ClientHello, or the handshake failed;   yes
//	                sends an alert or Plaintext, and waits for the
//	                peer's end
//	endBroken       the socket has ended or failed before the handshake     if a part of a ClientHello had come
//	giveUp          onTimeout: handshakeTimeout is over                     unless refused before
//	                onEvicted, onBusy: another newcomer has the place
type newcomer struct {
	c      *conn // what the connection becomes
	l      *Listener
	source netip.Addr
	place  *fair.Place // until the ClientHello is whole

	descriptor
	state  newcomerState
	reader hello.Reader
	input  []byte // so far, of a ClientHello that is not whole
	timer  loop.Timer
	ready  bool // the socket may have input
	all    bool // it is read until it has none: an end or a failure may come after the input

	flights *flights    // of the handshake
	slot    *fair.Place // of the handshake, until its end; idle while the handshake waits for the peer
	awaited bool        // the handshake waits for input
}

// newcomers is the set of a loop's newcomers.
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
	newcomerShaking                      // the handshake is in progress
	newcomerRefused                      // the write side is shut, and the peer's end is awaited
	newcomerLeft                         // closed, or a connection
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

// greet makes c, which has its socket, a newcomer on its loop. The peer is at source. The newcomer owns the socket until arrive.
func (l *Listener) greet(c *conn, source netip.Addr) {
	r := l.reactor
	n := &newcomer{c: c, l: l, source: source, descriptor: c.descriptor}
	n.timer.Fire = n.onTimeout
	if err := n.watch(n, kernel.Input); err != nil {
		l.notArrived(c, err)
		return
	}
	r.connections.others.Add(1)
	n.place = l.newcomers.Take(share.Source{Peer: source}, func() { n.loop.Post(n.onEvicted) })
	n.loop.newcomers[n] = struct{}{}
	n.loop.After(r.handshakes.timeout, &n.timer)
}

// onEvents implements watcher.
func (n *newcomer) onEvents(e kernel.Events) {
	if e&kernel.Output != 0 {
		if errno := n.onWritable(); errno != 0 {
			n.giveUp(errno)
			return
		}
	}
	n.ready, n.all = n.ready || e&kernel.Input != 0, n.all || n.unix || e&kernel.All != 0
	n.read()
}

// read reads what the socket has, until the handshake has the input that it waits for.
func (n *newcomer) read() {
	for range maxReads {
		if !n.mayRead() {
			return
		}
		k, errno := kernel.Receive(n.fd, n.loop.input)
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN:
			n.ready = false
			return
		case errno != 0:
			n.onEnd(errno)
			return
		case k == 0:
			n.onEnd(io.EOF)
			return
		}
		n.ready = n.all || k == len(n.loop.input)
		n.onInput(n.loop.input[:k])
	}
	if n.mayRead() && n.rewatch() != nil {
		n.endBroken()
	}
}

// mayRead reports whether the socket may have input that the newcomer takes now.
func (n *newcomer) mayRead() bool {
	return n.ready && n.state != newcomerLeft && (n.state != newcomerShaking || n.awaited)
}

// onEnd takes the end or the failure of the socket.
func (n *newcomer) onEnd(err error) {
	if n.state == newcomerShaking {
		n.respond(nil, err)
		return
	}
	n.endBroken()
}

func (n *newcomer) onInput(b []byte) {
	switch n.state {
	case newcomerShaking:
		n.respond(b, nil)
	case newcomerWaiting:
		n.onHello(b)
	}
}

// onHello takes a part of the ClientHello.
func (n *newcomer) onHello(b []byte) {
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
	response := n.l.opts.Plaintext
	var bad *hello.Error
	if errors.As(err, &bad) {
		response = hello.Alert(bad.Alert)
	}
	n.refuseWith(response, err)
}

// refuseWith is refuse with a response.
func (n *newcomer) refuseWith(response []byte, err error) {
	n.become(newcomerRefused)
	n.countFailure(err)
	n.input = nil
	n.slot.Release()
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
func (n *newcomer) onEvicted() {
	if n.state != newcomerShaking {
		n.giveUp(errSilent)
	}
}

// onBusy ends a newcomer whose handshake has lost its place to another one.
func (n *newcomer) onBusy() { n.giveUp(errBusy) }

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

// end closes the socket, and uncounts the newcomer.
func (n *newcomer) end() {
	n.leave()
	n.descriptor.close()
	n.c.unreserve()
	if n.awaited {
		n.respond(nil, net.ErrClosed)
	}
}

// leave ends what the newcomer holds besides its socket.
func (n *newcomer) leave() {
	n.become(newcomerLeft)
	n.loop.Stop(&n.timer)
	delete(n.loop.newcomers, n)
	n.input = nil
	n.place.Release()
	n.slot.Release()
	n.l.reactor.connections.others.Add(-1) // a connection counts as open
}

// beginHandshake starts the handshake on a goroutine. A handshake that waits for its peer gives its place to
// another handshake.
func (n *newcomer) beginHandshake() {
	r := n.l.reactor
	n.slot = r.handshakes.take(n.source, func() { n.loop.Post(n.onBusy) })
	if n.slot == nil {
		n.giveUp(errBusy)
		return
	}
	n.flights = newFlights(n)
	input := n.input
	if !r.spawn(func() { n.handshake(input) }) {
		n.giveUp(ErrStopped)
		return
	}
	n.become(newcomerShaking)
	n.input = nil
	n.place.Release()
}

// handshake does the handshake, which has received input. It runs on a goroutine, and accesses no field that the
// loop changes.
func (n *newcomer) handshake(input []byte) {
	f := n.flights
	var over *secure
	err := n.l.reactor.panics.Guard(func() (err error) {
		// The newcomer's timer ends it, and so does Stop.
		if over, err = handshake(context.Background(), n.c, n.l.opts.TLS, f, input, tls.Server); err == nil {
			over.identify()
		}
		return err
	})
	n.loop.Post(func() { n.onHandshake(over, err) })
}

// onFlight sends what the handshake has written, and reads what it waits for. Until it has come, the handshake may
// have to give way to another one.
func (n *newcomer) onFlight(out []byte) {
	n.awaited = true
	if n.state != newcomerShaking {
		n.respond(nil, net.ErrClosed)
		return
	}
	if errno := n.write(out); errno != 0 {
		n.respond(nil, errno)
		return
	}
	if n.read(); n.awaited {
		n.slot.SetIdle(true)
	}
}

// respond passes input, or why there is none, to the handshake that waits for it.
func (n *newcomer) respond(b []byte, err error) {
	n.awaited = false
	n.slot.SetIdle(false)
	n.flights.deliver(b, err)
}

// onHandshake takes the end of the handshake. After a failure the newcomer sends what the handshake has left, an
// alert.
func (n *newcomer) onHandshake(over *secure, err error) {
	if n.state != newcomerShaking {
		return
	}
	if err != nil {
		n.refuseWith(n.flights.out, err)
		n.read()
	} else if errno := n.write(n.flights.out); errno != 0 {
		n.giveUp(errno)
	} else {
		n.arrive(over)
	}
}

// arrive makes the newcomer the connection that it becomes.
func (n *newcomer) arrive(over *secure) {
	r, c := n.l.reactor, n.c
	n.leave()
	r.tls.succeed(over.tls)
	if over.peer != nil {
		c.reservation.prove()
		r.handshakes.know(n.source)
	}
	if len(n.flights.left) > 0 {
		over.wire.in = n.flights.left
	}
	c.secure, c.descriptor = over, n.descriptor
	n.fd = -1
	c.loop.setWatcher(c.fd, c)
	c.loop.conns.add(c)
	c.open()
	if n.ready && c.fd >= 0 && c.rewatch() != nil {
		c.end(unix.ENOMEM)
	}
}
