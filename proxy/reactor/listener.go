package reactor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/proxy/loop"
)

// errNotEnrolled is when the kernel refused to watch a socket (out of memory or
// of epoll watches); gnet does not pass its error on.
var errNotEnrolled = errors.New("reactor: the event loop could not watch the socket")

// ListenOptions configure a Listener. The zero value is ready for use.
type ListenOptions struct {
	// Overload is sent to a connection that is refused for being one too
	// many, before it is closed: a protocol's word for "busy". It is not
	// changed, and must not be by the caller. Empty: nothing is said.
	Overload []byte

	// TLS is asked for the configuration of each connection, which must
	// demand and verify what it wants of the peer: only one whose handshake
	// has succeeded reaches accept. nil: plain text.
	TLS func() *tls.Config

	// Transparent makes a listener for redirected connections, in plain text.
	// nil: they are like any other.
	Transparent *Transparent

	// MaxConnections bounds the listener's open connections, within those of
	// the Engine; what is over it is refused. 0: no bound of its own.
	MaxConnections int
}

// Listener accepts connections for an Engine's loops.
type Listener struct {
	eng    *Engine
	ln     net.Listener
	loops  []*eventLoop // where connections go
	accept func(l loop.Loop, remote string) loop.Stream
	opts   ListenOptions
	room   room
	shed   chan struct{} // a token for each refused connection being told so
	done   chan struct{} // closed when the accepting goroutine has ended
	ctx    context.Context
	cancel context.CancelFunc
}

// Back-off after a failed accept, mostly for want of descriptors: it doubles
// from the first to the second. shedTime and maxShed bound how long, and for
// how many at once, a refused connection's last word is waited for.
const (
	minBackoff = 5 * time.Millisecond
	maxBackoff = time.Second
	shedTime   = 250 * time.Millisecond
	maxShed    = 64
)

// Listen accepts TCP connections at addr ("host:port") and spreads them over the
// loops. For each, accept is called on the loop that got it, with the peer's
// "ip:port", and returns its stream, or nil to close it.
func (e *Engine) Listen(addr string, o ListenOptions, accept func(l loop.Loop, remote string) loop.Stream) (*Listener, error) {
	return e.listen(addr, o, accept, e.loops)
}

// Bind opens a socket at addr for Serve. The kernel accepts connections from then
// on, and keeps a backlog of them.
func Bind(addr string) (net.Listener, error) {
	lc := net.ListenConfig{
		KeepAlive: -1, // not for each connection
		// Before connections wait in the backlog, which would go without.
		Control: func(_, _ string, raw syscall.RawConn) error { return probing(raw) },
	}
	lc.SetMultipathTCP(false) // plain TCP has the shorter path through the kernel
	ln, err := lc.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("reactor: %w", err)
	}
	return ln, nil
}

// Serve is Listen on a socket from Bind, which becomes the Listener's, or is
// closed with an error.
func (e *Engine) Serve(ln net.Listener, o ListenOptions, accept func(l loop.Loop, remote string) loop.Stream) (*Listener, error) {
	return e.serve(ln, o, accept, e.loops)
}

func (e *Engine) listen(addr string, o ListenOptions, accept func(l loop.Loop, remote string) loop.Stream, loops []*eventLoop) (*Listener, error) {
	ln, err := Bind(addr)
	if err != nil {
		return nil, err
	}
	return e.serve(ln, o, accept, loops)
}

func (e *Engine) serve(ln net.Listener, o ListenOptions, accept func(l loop.Loop, remote string) loop.Stream, loops []*eventLoop) (*Listener, error) {
	if err := keepAlive(ln); err != nil {
		e.log.Warn("silent peers of a listener may not be probed", "address", ln.Addr().String(), "error", err)
	}
	l := &Listener{
		eng: e, ln: ln, loops: loops, accept: accept, opts: o,
		shed: make(chan struct{}, maxShed), done: make(chan struct{}),
	}
	l.room.max = int64(o.MaxConnections)
	l.ctx, l.cancel = context.WithCancel(e.ctx)
	e.mu.Lock()
	stopping := e.stopping
	if !stopping {
		e.listeners[l] = struct{}{}
		e.helpers.Go(l.run)
	}
	e.mu.Unlock()
	if stopping {
		l.cancel()
		return nil, errors.Join(ErrStopped, ln.Close())
	}
	return l, nil
}

// Keep-alive probes of accepted connections, those of package net: the first after
// keepAliveTime of silence, further ones as far apart, until so many are unanswered.
const (
	keepAliveTime  = 15 * time.Second
	keepAliveCount = 9
)

// keepAlive sets the options on a listening socket that Bind has not made.
func keepAlive(ln net.Listener) error {
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	return probing(raw)
}

// probing sets the options of a listening socket. The connections that the kernel
// makes of it have them too, which spares each of them the system calls.
func probing(raw syscall.RawConn) error {
	var failed error
	err := raw.Control(func(fd uintptr) {
		for _, o := range []struct{ level, name, value int }{
			{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(keepAliveTime / time.Second)},
			{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(keepAliveTime / time.Second)},
			{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAliveCount},
		} {
			failed = errors.Join(failed, unix.SetsockoptInt(int(fd), o.level, o.name, o.value))
		}
	})
	return errors.Join(err, os.NewSyscallError("setsockopt", failed))
}

// Addr is where l listens.
func (l *Listener) Addr() net.Addr { return l.ln.Addr() }

// Close stops accepting. Connections that were accepted stay, and the last of
// them may reach their loop after Close has returned.
func (l *Listener) Close() error {
	l.eng.mu.Lock()
	delete(l.eng.listeners, l)
	l.eng.mu.Unlock()
	l.cancel()
	err := l.ln.Close()
	<-l.done
	return err
}

// run accepts until the listener is closed. An error is no reason to end: gnet
// would shut down altogether when descriptors run out.
func (l *Listener) run() {
	defer close(l.done)
	defer l.cancel()
	backoff := minBackoff
	for {
		nc, err := l.ln.Accept()
		if err == nil {
			backoff = minBackoff
			l.take(nc)
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		l.eng.count.acceptErrors.Add(1)
		if backoff == minBackoff {
			l.eng.log.Warn("accept failed", "address", l.ln.Addr().String(), "error", err)
		}
		select {
		case <-time.After(backoff):
		case <-l.ctx.Done():
			return
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// take places nc on the loop with the fewest connections, or refuses it.
func (l *Listener) take(nc net.Conn) {
	e := l.eng
	at, ok := e.places.take(nc.RemoteAddr(), &l.room)
	if !ok {
		l.refuse(nc)
		return
	}
	target := l.loops[0]
	for _, other := range l.loops[1:] {
		if other.load.Load() < target.load.Load() {
			target = other
		}
	}
	target.load.Add(1)
	c := &conn{loop: target, accept: l.accept, remote: nc.RemoteAddr().String(), state: connArriving, place: at}
	enroll := func() {
		if l.opts.TLS != nil && !l.shake(c, nc) {
			target.load.Add(-1)
			c.place.leave()
			return
		}
		if l.opts.Transparent != nil && l.diverted(c, nc.(*net.TCPConn)) {
			target.load.Add(-1) // its place goes along
			return
		}
		if err := c.enroll(nc); err != nil {
			target.load.Add(-1)
			c.place.leave()
			e.count.acceptErrors.Add(1)
			e.log.Warn("accepted connection lost", "remote", c.remote, "error", err)
		}
	}
	if !e.spawn(enroll) {
		target.load.Add(-1)
		c.place.leave()
		_ = nc.Close()
		return
	}
	e.count.accepted.Add(1)
}

// shake makes the handshake of an accepted connection, and closes it if that
// fails. Those that never end hold a goroutine each, so their number and their
// time are bounded, and what is beyond is closed at once.
func (l *Listener) shake(c *conn, nc net.Conn) bool {
	e := l.eng
	err := errBusy
	select {
	case e.shaking <- struct{}{}:
		err = c.handshake(e.ctx, nc, time.Now().Add(e.handshakeTimeout), tls.Server, l.opts.TLS())
		if err != nil && e.ctx.Err() == nil {
			farewell(nc) // so that the alert says why
		}
		<-e.shaking
	default:
	}
	if err == nil {
		e.count.handshakes.Add(1)
		return true
	}
	_ = nc.Close()
	if e.ctx.Err() == nil && err != errSilent {
		e.tlsFailed(c.remote, err)
	}
	return false
}

// refuse closes nc, with the last word if there is one and few are being told.
func (l *Listener) refuse(nc net.Conn) {
	if len(l.opts.Overload) > 0 && l.opts.TLS == nil {
		select {
		case l.shed <- struct{}{}:
			if l.eng.spawn(func() { l.lastWord(nc); <-l.shed }) {
				return
			}
			<-l.shed
		default:
		}
	}
	_ = nc.Close()
}

// lastWord sends Overload and waits a moment for the peer's end, since a close
// with its request unread would send a reset that can destroy the answer.
func (l *Listener) lastWord(nc net.Conn) {
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(shedTime))
	if _, err := nc.Write(l.opts.Overload); err != nil {
		return
	}
	farewell(nc)
}

// farewell shuts the write side and drops input until the peer's end, for a
// moment.
func farewell(nc net.Conn) {
	_ = nc.SetDeadline(time.Now().Add(shedTime))
	if tcp, ok := nc.(*net.TCPConn); ok && tcp.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, nc)
	}
}
