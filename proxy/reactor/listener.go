package reactor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/internal/unixaddr"
	"github.com/remora-proxy/remora/proxy/fair"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
	"github.com/remora-proxy/remora/proxy/reactor/unixsock"
)

// errNotEnrolled reports that the kernel refused to watch a socket, for lack of memory or
// epoll watches. gnet does not pass its error on.
var errNotEnrolled = errors.New("reactor: the event loop could not watch the socket")

// ListenOptions configure a Listener. The zero value is ready for use.
type ListenOptions struct {
	// Overload is sent to a connection above a limit before it is closed: a response of the
	// protocol. Nobody may change it after Listen. Empty means that nothing is sent.
	Overload []byte

	// TLS returns the configuration for each connection. It must verify a certificate that the
	// peer shows: every connection whose handshake succeeds reaches accept, with the names of the
	// certificate. nil means plain text.
	TLS func() *tls.Config

	// Plaintext is sent to a peer that does not speak TLS although TLS is set, before the
	// connection is closed: a response of the protocol. Nobody may change it after Listen. Empty
	// means that nothing is sent.
	Plaintext []byte

	// Transparent makes the listener recognize redirected connections, which must be in plain
	// text. nil means that they are handled like any other.
	Transparent *Transparent

	// Proxies says who makes the connections, each of which begins with a header of the PROXY
	// protocol. nil means that clients make them themselves.
	Proxies *Proxies

	// MaxConnections limits the listener's open connections, besides the limits of the Engine.
	// 0 means no limit of its own.
	MaxConnections int
}

// Listener accepts connections for an Engine's loops.
type Listener struct {
	eng            *Engine
	ln             net.Listener
	loops          []*eventLoop // where connections go
	accept         func(l loop.Loop, remote string) loop.Stream
	opts           ListenOptions
	limit          listenerLimit
	newcomers      *fair.Table   // connections without a whole ClientHello; nil without TLS
	overloadTokens chan struct{} // has a token for each refused connection that Overload is sent to
	done           chan struct{} // closed when the accepting goroutine has ended
	ctx            context.Context
	cancel         context.CancelFunc
}

// Back-off after a failed accept, whose usual cause is a lack of descriptors: it doubles from
// minBackoff to maxBackoff. overloadTime limits sending Overload to a refused connection, and
// maxOverloaded the number of connections that are sent it at a time.
const (
	minBackoff    = 5 * time.Millisecond
	maxBackoff    = time.Second
	overloadTime  = 250 * time.Millisecond
	maxOverloaded = 64
)

// Listen accepts connections at addr ("host:port" or a Unix socket) and spreads them over the
// loops. For each, it calls accept on the connection's loop with its RemoteAddr. accept returns the
// stream, or nil to close the connection. After Stop the error is ErrStopped.
func (e *Engine) Listen(addr string, o ListenOptions, accept func(l loop.Loop, remote string) loop.Stream) (*Listener, error) {
	ln, err := Bind(addr)
	if err != nil {
		return nil, err
	}
	return e.Serve(ln, o, accept)
}

// Bind opens a socket at addr ("host:port" or a Unix socket) for Serve. From then on the kernel
// accepts connections into its backlog. 0.0.0.0 is all IPv4 addresses; "::" and no host are all
// addresses of both versions. A Unix socket is an *unixsock.Listener.
func Bind(addr string) (net.Listener, error) { return BindMode(addr, 0) }

// BindMode is Bind with the mode of the file of a Unix socket; 0 means that the umask decides.
func BindMode(addr string, mode fs.FileMode) (net.Listener, error) {
	if network, name := unixaddr.Split(addr); network == "unix" {
		ln, err := unixsock.Listen(name, mode)
		if err != nil {
			return nil, fmt.Errorf("reactor: %w", err)
		}
		return ln, nil
	}
	lc := net.ListenConfig{
		KeepAlive: -1, // the listening socket has the options
		// Control runs before connections enter the backlog, so they inherit the options.
		Control: func(_, _ string, raw syscall.RawConn) error { return setKeepAlive(raw) },
	}
	lc.SetMultipathTCP(false) // plain TCP has the shorter path through the kernel
	ln, err := lc.Listen(context.Background(), networkOf(addr), addr)
	if err != nil {
		return nil, fmt.Errorf("reactor: %w", err)
	}
	return ln, nil
}

// networkOf returns the network of addr for package net. With "tcp" that would listen at 0.0.0.0
// on all IPv6 addresses, too.
func networkOf(addr string) string {
	host, _, _ := net.SplitHostPort(addr)
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is4() {
		return "tcp4"
	}
	return "tcp"
}

// Serve is Listen on a socket from Bind, which it owns, and closes when it returns an error.
func (e *Engine) Serve(ln net.Listener, o ListenOptions, accept func(l loop.Loop, remote string) loop.Stream) (*Listener, error) {
	return e.serve(ln, o, accept, e.loops)
}

func (e *Engine) serve(ln net.Listener, o ListenOptions, accept func(l loop.Loop, remote string) loop.Stream, loops []*eventLoop) (*Listener, error) {
	if o.Transparent != nil && !kernel.Redirects {
		return nil, errors.Join(fmt.Errorf("reactor: a transparent listener %w", kernel.ErrLinuxOnly), ln.Close())
	}
	if err := ensureKeepAlive(ln); err != nil {
		e.log.Warn("keep-alive probes of a listener may be off: the socket options can't be set", "address", ln.Addr().String(), "error", err)
	}
	l := &Listener{
		eng: e, ln: ln, loops: loops, accept: accept, opts: o,
		overloadTokens: make(chan struct{}, maxOverloaded), done: make(chan struct{}),
	}
	l.limit.max = int64(o.MaxConnections)
	if o.TLS != nil {
		l.limit.known = func() bool { return o.TLS().ClientAuth >= tls.RequireAnyClientCert }
		l.newcomers = fair.NewTable(placesFor(e.limits.max, l.limit.max))
		l.newcomers.Turnover = true
	}
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

// Keep-alive probes of accepted connections, with the values of package net: the first after
// keepAliveTime of silence, further ones at the same interval. After keepAliveCount probes
// without an acknowledgement the kernel closes the connection.
const (
	keepAliveTime  = 15 * time.Second
	keepAliveCount = 9
)

// ensureKeepAlive is for a listening socket that Bind has not opened.
func ensureKeepAlive(ln net.Listener) error {
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	return setKeepAlive(raw)
}

// setKeepAlive sets the options of a listening socket. Accepted connections inherit them,
// which saves the system calls for each.
func setKeepAlive(raw syscall.RawConn) error {
	var failed error
	err := raw.Control(func(fd uintptr) {
		for _, o := range []struct{ level, name, value int }{
			{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			{unix.IPPROTO_TCP, kernel.KeepAliveTime, int(keepAliveTime / time.Second)},
			{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(keepAliveTime / time.Second)},
			{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAliveCount},
		} {
			failed = errors.Join(failed, unix.SetsockoptInt(int(fd), o.level, o.name, o.value))
		}
	})
	return errors.Join(err, os.NewSyscallError("setsockopt", failed))
}

// Addr returns the address that l listens on.
func (l *Listener) Addr() net.Addr { return l.ln.Addr() }

// Close stops accepting. Connections that wait in the kernel are still accepted, lest it resets them.
// Accepted connections stay open, and may reach their loop later.
func (l *Listener) Close() error {
	l.eng.mu.Lock()
	delete(l.eng.listeners, l)
	l.eng.mu.Unlock()
	l.cancel()
	if ln, ok := l.ln.(kernelListener); ok && ln.SetDeadline(longAgo) == nil {
		<-l.done
		l.acceptRest(ln)
	}
	err := l.ln.Close()
	<-l.done
	return err
}

// run accepts until the listener is closed. After any other error it tries again, while gnet's
// own listener would stop the engine when descriptors run out.
func (l *Listener) run() {
	defer close(l.done)
	defer l.cancel()
	backoff := minBackoff
	for {
		nc, err := l.ln.Accept()
		if err == nil {
			backoff = minBackoff
			l.onAccept(nc)
			continue
		}
		if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
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

// onAccept gives nc to a loop, or refuses it.
func (l *Listener) onAccept(nc net.Conn) {
	if l.opts.Proxies != nil {
		l.acceptProxied(nc)
		return
	}
	at, ok := l.eng.limits.reserve(nc.LocalAddr(), nc.RemoteAddr(), &l.limit, connFiles)
	if !ok {
		l.refuse(nc)
		return
	}
	l.assign(nc, at, nil)
}

// unixPeer stands for the peers on Unix sockets, whose own addresses say nothing.
var unixPeer net.Addr = &net.UnixAddr{Name: loop.UnixPeer, Net: "unix"}

// assign gives nc, with its reservation, to the loop with the fewest connections. client is who a
// proxy has made it for; nil means the peer itself.
func (l *Listener) assign(nc net.Conn, at reservation, client net.Addr) {
	e := l.eng
	if _, isUnix := nc.(*net.UnixConn); isUnix && client == nil {
		client = unixPeer
	}
	target := l.loops[0]
	for _, other := range l.loops[1:] {
		if other.load.Load() < target.load.Load() {
			target = other
		}
	}
	target.load.Add(1)
	c := &conn{loop: target, accept: l.accept, peer: client, state: connArriving, reservation: at, config: l.opts.TLS}
	c.remote = c.sourceOf(nc).String()
	if !l.begin(c, nc) {
		c.lost()
		_ = nc.Close()
		return
	}
	e.count.accepted.Add(1)
}

// sourceOf returns the address of the peer of c, which has the connection nc.
func (c *conn) sourceOf(nc net.Conn) net.Addr {
	if c.peer != nil {
		return c.peer
	}
	return nc.RemoteAddr()
}

// begin starts the way of nc, accepted for c, to its loop; false after Stop.
func (l *Listener) begin(c *conn, nc net.Conn) bool {
	if l.opts.TLS != nil {
		return l.greet(c, nc)
	}
	return l.eng.spawn(func() {
		if !l.enroll(c, nc) {
			c.lost()
		}
	})
}

// lost uncounts an accepted connection that does not reach its loop. If it was passed on, its
// Socket keeps the reservation.
func (c *conn) lost() {
	c.loop.load.Add(-1)
	c.reservation.release()
}

// enroll gives nc to c's loop; false if nc was closed or passed on.
func (l *Listener) enroll(c *conn, nc net.Conn) bool {
	if l.opts.Transparent != nil && l.passOn(c, nc.(*net.TCPConn)) {
		return false
	}
	if err := c.enroll(nc); err != nil {
		l.notEnrolled(c, err)
		return false
	}
	return true
}

// notEnrolled counts and logs a connection that its loop could not take.
func (l *Listener) notEnrolled(c *conn, err error) {
	l.eng.count.acceptErrors.Add(1)
	l.eng.log.Warn("accepted connection closed: the event loop could not take it", "remote", c.remote, "error", err)
}

// refuse closes nc. It sends Overload first, unless maxOverloaded connections are sent it now.
func (l *Listener) refuse(nc net.Conn) {
	if len(l.opts.Overload) > 0 && l.opts.TLS == nil {
		select {
		case l.overloadTokens <- struct{}{}:
			if l.eng.spawn(func() { l.sendOverload(nc); <-l.overloadTokens }) {
				return
			}
			<-l.overloadTokens
		default:
		}
	}
	_ = nc.Close()
}

// sendOverload sends Overload and waits a moment for the peer's end: a close with unread input
// would send a reset, which can destroy the response.
func (l *Listener) sendOverload(nc net.Conn) {
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(overloadTime))
	if _, err := nc.Write(l.opts.Overload); err != nil {
		return
	}
	lingerClose(nc)
}

// lingerClose shuts the write side and discards input until the peer's end, at most for
// overloadTime. The caller closes nc.
func lingerClose(nc net.Conn) {
	_ = nc.SetDeadline(time.Now().Add(overloadTime))
	if raw, ok := nc.(rawConn); ok && raw.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, nc)
	}
}
