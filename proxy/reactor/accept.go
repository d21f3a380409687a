package reactor

import (
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// maxAccepts limits the connections that one turn accepts, so that open connections wait no longer.
const maxAccepts = 16

// acceptor accepts the connections of a listener on one loop. The acceptors of all loops share the
// socket: the engine tells one loop that waits of a connection, or all.
type acceptor struct {
	l       *Listener
	fd      int // of a socket of l
	loop    *eventLoop
	watched bool
	turn    time.Duration // the beginning of the last turn in which the acceptor has accepted
	backoff time.Duration // after the next failed accept
	timer   loop.Timer    // armed after maxAccepts, a panic or a failure: connections may wait without another event
}

func newAcceptor(l *Listener, fd int, on *eventLoop) *acceptor {
	a := &acceptor{l: l, fd: fd, loop: on, backoff: kernel.MinBackoff}
	a.timer.Fire = a.goOn
	return a
}

// goOn accepts the connections that still wait. Timers fire after the events of their turn. If the turn has accepted on an event of
// the listener, goOn leaves the other connections to the next turn, so that no turn accepts more than maxAccepts.
func (a *acceptor) goOn() {
	if a.turn == a.loop.turn.began {
		a.loop.After(0, &a.timer)
		return
	}
	a.start()
}

// start watches the socket, unless it is watched, and accepts.
func (a *acceptor) start() {
	if !a.watched {
		if err := a.loop.poller.Add(a.fd, kernel.Input|kernel.Shared); err != nil {
			a.failed(err)
			return
		}
		a.loop.setWatcher(a.fd, a)
		a.watched = true
	}
	a.onEvents(kernel.Input)
}

// stop ends watching: a kernel that tells one loop of a connection then tells another.
func (a *acceptor) stop() {
	a.loop.Stop(&a.timer)
	if a.watched {
		_ = a.loop.poller.Remove(a.fd) // can't fail: it is watched
		a.loop.setWatcher(a.fd, nil)
		a.watched = false
	}
}

// onEvents implements watcher. The kernel tells once of all connections that wait.
func (a *acceptor) onEvents(kernel.Events) {
	a.turn = a.loop.turn.began
	a.loop.After(0, &a.timer)
	errno := kernel.AcceptAll(a.fd, maxAccepts, func(fd int, from netip.AddrPort) {
		a.backoff = kernel.MinBackoff
		a.l.onAccept(a.loop, fd, from)
	})
	switch errno {
	case 0: // the timer goes on
	case unix.EAGAIN:
		a.loop.Stop(&a.timer)
	default:
		a.failed(errno)
	}
}

// failed tries again later.
func (a *acceptor) failed(err error) {
	a.stop()
	a.l.reactor.count.acceptErrors.Add(1)
	if a.backoff == kernel.MinBackoff {
		a.l.reactor.log.Warn("accept failed", "address", a.l.Addr().String(), "error", err)
	}
	a.loop.After(a.backoff, &a.timer)
	a.backoff = min(2*a.backoff, kernel.MaxBackoff)
}

// onAccept gives fd, accepted on a loop, to a loop, or refuses it.
func (l *Listener) onAccept(on *eventLoop, fd int, from netip.AddrPort) {
	if l.opts.Proxies != nil || l.opts.Transparent != nil {
		l.acceptElsewhere(fd, from) // closes fd
		return
	}
	decided := false
	defer func() {
		if !decided { // a panic
			_ = unix.Close(fd)
		}
	}()
	at, ok := l.reactor.connections.reserve(l.countedSource(fd, from.Addr()), &l.limit, connFiles)
	decided = true
	if !ok {
		l.refuseSocket(fd)
		return
	}
	c := l.newConn(l.loopFor(on), at)
	c.fd = fd
	if from.IsValid() {
		c.remote = from.String()
	} else {
		c.remote, c.peer, c.unix = loop.UnixPeer, unixPeer, true
	}
	if c.loop == on {
		l.begin(c)
	} else {
		c.loop.Post(func() { l.begin(c) })
	}
}

// countedSource returns the source that a connection from an address counts for, if any.
func (l *Listener) countedSource(fd int, from netip.Addr) netip.Addr {
	if l.reactor.connections.allLocal && (from.IsLoopback() || l.loopback || l.wildcard && kernel.IsLoopback(fd)) {
		return netip.Addr{}
	}
	return loop.Source(from)
}

// loopFor returns the loop of a connection that was accepted on a loop (nil: on none): that one,
// which saves a thread's wake-up, unless another has fewer connections by an eighth.
func (l *Listener) loopFor(on *eventLoop) *eventLoop {
	least := l.loops[0]
	for _, other := range l.loops[1:] {
		if other.load.Load() < least.load.Load() {
			least = other
		}
	}
	if n := least.load.Load(); on != nil && on.load.Load() <= n+n/8 {
		return on
	}
	return least
}

// newConn returns an accepted connection on its way to a loop.
func (l *Listener) newConn(target *eventLoop, at reservation) *conn {
	target.load.Add(1)
	l.reactor.count.accepted.Add(1)
	return &conn{
		countedOn:  target,
		descriptor: descriptor{loop: target, fd: -1},
		listener:   l, state: connArriving, reservation: at,
	}
}

// begin begins the events of an accepted connection, on its loop.
func (l *Listener) begin(c *conn) {
	if l.opts.TLS != nil && c.secure == nil {
		l.greet(c, loop.Source(loop.PeerAddr(c.remote)))
	} else if err := c.arrive(); err != nil {
		l.notArrived(c, err)
	}
}

// notArrived closes, counts and logs a connection that its loop could not take.
func (l *Listener) notArrived(c *conn, err error) {
	c.descriptor.close()
	c.unreserve()
	l.reactor.count.acceptErrors.Add(1)
	l.reactor.log.Warn("accepted connection closed: the event loop could not take it", "remote", c.remote, "error", err)
}

// acceptElsewhere is for connections whose first bytes are read on a goroutine. The address is that of
// the accept: package net has none for a connection that was reset meanwhile.
func (l *Listener) acceptElsewhere(fd int, from netip.AddrPort) {
	peer := unixPeer
	if from.IsValid() {
		peer = net.TCPAddrFromAddrPort(from)
	}
	nc, err := kernel.Conn(fd)
	defer unix.Close(fd)
	switch {
	case err != nil:
		l.reactor.count.acceptErrors.Add(1)
		l.reactor.log.Warn("accepted connection closed", "remote", peer.String(), "error", err)
	case l.opts.Proxies != nil:
		l.acceptProxied(nc, peer)
	default:
		if at, ok := l.reactor.connections.reserve(l.countedSource(fd, from.Addr()), &l.limit, connFiles); ok {
			l.assign(nc, at, peer)
		} else {
			l.refuse(nc)
		}
	}
}

// assign gives nc, with its reservation, to a loop. peer is who a proxy has made it for, or who has made
// it.
func (l *Listener) assign(nc net.Conn, at reservation, peer net.Addr) {
	c := l.newConn(l.loopFor(nil), at)
	c.peer, c.remote = peer, peer.String()
	if l.opts.Transparent == nil {
		l.deliver(c, nc)
		return
	}
	if !l.reactor.spawn(func() {
		passed := false
		ok := l.reactor.panics.Do(func() { passed = l.passOn(c, nc.(*net.TCPConn)) })
		switch {
		case !ok:
			c.unreserve()
			_ = nc.Close()
		case passed:
			c.unreserve()
		default:
			l.deliver(c, nc)
		}
	}) {
		c.unreserve()
		_ = nc.Close()
	}
}

// deliver gives nc to c on its loop.
func (l *Listener) deliver(c *conn, nc net.Conn) {
	c.loop.Post(func() {
		if err := c.takeFrom(nc); err != nil {
			l.notArrived(c, err)
		} else {
			l.begin(c)
		}
	})
}

// refuseSocket closes the socket of a connection above a limit, after Overload.
func (l *Listener) refuseSocket(fd int) {
	if l.sendsOverload() {
		if nc, err := kernel.Conn(fd); err == nil {
			l.refuse(nc)
		}
	}
	_ = unix.Close(fd)
}

// sendsOverload reports whether Overload is sent to connections above a limit.
func (l *Listener) sendsOverload() bool { return len(l.opts.Overload) > 0 && l.opts.TLS == nil }

// refuse closes nc. It sends Overload first, unless maxOverloaded connections are sent it now.
func (l *Listener) refuse(nc net.Conn) {
	if l.sendsOverload() {
		select {
		case l.overloadTokens <- struct{}{}:
			if l.reactor.spawn(func() { l.sendOverload(nc); <-l.overloadTokens }) {
				return
			}
			<-l.overloadTokens
		default:
		}
	}
	_ = nc.Close()
}

// sendOverload sends Overload and waits for the peer's end, at most for overloadTime in all: a close with unread input
// would send a reset, which can destroy the response.
func (l *Listener) sendOverload(nc net.Conn) {
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(overloadTime))
	if _, err := nc.Write(l.opts.Overload); err != nil {
		return
	}
	lingerClose(nc)
}

// lingerClose shuts the write side and discards input until the peer's end or the deadline of nc. The caller closes nc.
func lingerClose(nc net.Conn) {
	if raw, ok := nc.(rawConn); ok && raw.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, nc)
	}
}

// unixPeer stands for the peers on Unix sockets, whose own addresses say nothing.
var unixPeer net.Addr = &net.UnixAddr{Name: loop.UnixPeer, Net: "unix"}
