package reactor

import (
	"context"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/fair"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxyproto"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// Transparent configures a Listener to which the kernel redirects connections to other
// addresses (iptables REDIRECT). Redirected connections in HTTP/1 go to the loops, where
// loop.Conn.OriginalDst returns their destination. All others are given to Pass, see Guarded. A connection
// to the listener's own address always goes to a loop and has no original destination, since
// passing it on would make a loop.
//
// The first bytes are read before the connection reaches a loop, because there a half-close
// behind them would close it.
type Transparent struct {
	// Wait limits the time until a client has shown that it speaks HTTP/1. A client that sends
	// nothing may be waiting for its server to send first. Wait must be more than 0.
	Wait time.Duration

	// Guarded reports whether connections that resemble HTTP go to the loops too: HTTP/2, what only
	// lenient servers take for a request, and part of a request line after Wait. Any goroutine calls it.
	Guarded func() bool

	// Pass takes over any other connection, like downstream.Streams.Pass, on any goroutine.
	Pass func(s loop.Socket, to netip.AddrPort, first []byte)
}

// firstRead is the size of one read of a connection's first bytes: small, because each
// connection may hold one.
const firstRead = 1 << 10

// passOn reports whether nc, accepted for c, was given to Pass. If not, c has the bytes read.
func (l *Listener) passOn(c *conn, nc *net.TCPConn) bool {
	to := l.reactor.originalDst(nc)
	if !to.IsValid() {
		return false
	}
	first, isHTTP := l.readFirst(nc)
	if isHTTP {
		c.redirected = &redirection{to, first}
		return false
	}
	l.opts.Transparent.Pass(c.toSocket(nc), to, first)
	return true
}

// readFirst reads until it is known whether nc is for a loop. A connection that ends or fails
// before that is not.
func (l *Listener) readFirst(nc *net.TCPConn) (b []byte, isHTTP bool) {
	_ = nc.SetReadDeadline(time.Now().Add(l.opts.Transparent.Wait))
	awake := context.AfterFunc(l.reactor.ctx, func() { _ = nc.SetReadDeadline(time.Unix(1, 0)) })
	defer func() {
		awake()
		_ = nc.SetReadDeadline(time.Time{})
	}()
	var is http1.Detector
	for {
		b = slices.Grow(b, firstRead)
		n, err := nc.Read(b[len(b):cap(b)])
		verdict := is.Feed(b[len(b) : len(b)+n])
		b = b[:len(b)+n]
		switch {
		case verdict == http1.LikeHTTP:
			return b, l.opts.Transparent.Guarded()
		case verdict != http1.Undecided:
			return b, verdict == http1.IsHTTP
		case err != nil: // a request that has ended so early is none
			return b, len(b) > 0 && err != io.EOF && l.opts.Transparent.Guarded()
		}
	}
}

// Proxies says which peers of a Listener are proxies, which make each connection begin with a header
// of the PROXY protocol. It is read before the connection reaches a loop, or its TLS begins. From
// then on the connection is its client's: for limits, rules and logs. All functions are called on
// any goroutine.
type Proxies struct {
	// Trusts reports whether a peer is a proxy. All others are refused.
	Trusts func(peer netip.Addr) bool

	// Wait returns the time that a proxy has for the header.
	Wait func() time.Duration

	// Refused is called for each connection that is closed because its peer is no proxy, or its
	// header is malformed, cut or late.
	Refused func(remote string, err error)
}

// acceptProxied waits for the header of nc, which proxy has made, and then gives nc to a loop, or
// refuses it.
func (l *Listener) acceptProxied(nc net.Conn, proxy net.Addr) {
	r, p := l.reactor, l.opts.Proxies
	if !p.Trusts(loop.PeerAddr(proxy.String())) {
		_ = nc.Close()
		p.Refused(proxy.String(), proxyproto.ErrUntrusted)
		return
	}
	at, ok := r.connections.reserve(netip.Addr{}, &l.limit, connFiles) // its source is not known yet
	if !ok {
		l.refuse(nc)
		return
	}
	r.connections.others.Add(1)
	if !r.spawn(func() { l.readHeader(nc, at, proxy) }) {
		r.connections.others.Add(-1)
		at.release()
		_ = nc.Close()
	}
}

// readHeader reads the header of nc, which proxy has made, and gives nc to a loop.
func (l *Listener) readHeader(nc net.Conn, at reservation, proxy net.Addr) {
	r, p := l.reactor, l.opts.Proxies
	var header proxyproto.Header
	err := r.panics.Guard(func() (err error) {
		_ = nc.SetReadDeadline(time.Now().Add(p.Wait()))
		defer context.AfterFunc(r.ctx, func() { _ = nc.SetReadDeadline(time.Unix(1, 0)) })()
		header, err = proxyproto.Read(nc)
		return err
	})
	r.connections.others.Add(-1)
	if err != nil {
		at.release()
		_ = nc.Close()
		if err != io.EOF && r.ctx.Err() == nil { // without a byte it was a health check
			p.Refused(proxy.String(), err)
		}
		return
	}
	client := proxy // the connection is its own
	if header.Source.IsValid() {
		client = net.TCPAddrFromAddrPort(header.Source)
	}
	if !at.attribute(fair.SourceOf(client)) {
		at.release()
		l.refuse(nc)
		return
	}
	l.assign(nc, at, client)
}

// originalDst returns the original destination of nc from the kernel's connection tracking.
// The zero value means that nc was not redirected, or was made to this listener.
func originalDst(nc *net.TCPConn) (to netip.AddrPort) {
	raw, err := nc.SyscallConn()
	if err != nil {
		return netip.AddrPort{}
	}
	local := nc.LocalAddr().(*net.TCPAddr)
	ask := kernel.OriginalDst6
	if local.IP.To4() != nil { // a listener of both kinds has these too
		ask = kernel.OriginalDst4
	}
	_ = raw.Control(func(fd uintptr) { to, _ = ask(int(fd)) }) // without an answer it is the zero value
	at := local.AddrPort()
	if to == netip.AddrPortFrom(at.Addr().Unmap(), at.Port()) {
		return netip.AddrPort{}
	}
	return to
}
