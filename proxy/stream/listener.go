package stream

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/remora-proxy/remora/proxy/allow"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/reactor/hello"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
)

// Listener accepts opaque connections for one service, or for those that their ClientHello names.
type Listener struct {
	srv     *Server
	sockets []net.Listener // the first is at the address of the listener
	cfg     atomic.Pointer[config.Listener]
	proxies atomic.Pointer[config.Trust] // whom proxy_protocol trusts

	reserve func(local, remote net.Addr) (release func())

	accepting sync.WaitGroup // the goroutine of each socket
}

// Addr returns the address that l listens on.
func (l *Listener) Addr() net.Addr { return l.sockets[0].Addr() }

// Configure applies c to the connections accepted from now on. The address does not change.
func (l *Listener) Configure(c *config.Listener) {
	proxies := c.ProxyProtocol.Trusts()
	l.proxies.Store(&proxies)
	l.cfg.Store(c)
}

// Close stops accepting. Connections that wait in the kernel are still accepted, lest it resets them.
// Accepted streams continue. A second Close returns nil.
func (l *Listener) Close() error {
	l.srv.mu.Lock()
	delete(l.srv.listeners, l)
	l.srv.mu.Unlock()
	for _, ln := range l.sockets {
		if ln, ok := ln.(interface{ RemoveFile() }); ok {
			ln.RemoveFile() // before the last accept, so that no client connects after it
		}
		_ = ln.(interface{ SetDeadline(time.Time) error }).SetDeadline(time.Unix(1, 0)) // fails if it is closed
	}
	l.accepting.Wait()
	return l.closeSockets()
}

// closeSockets closes the sockets that are not closed.
func (l *Listener) closeSockets() (failed error) {
	for _, ln := range l.sockets {
		if err := ln.Close(); !errors.Is(err, net.ErrClosed) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// run accepts at a socket until the listener is closed. After any other error it tries again.
func (l *Listener) run(ln net.Listener) {
	backoff := kernel.MinBackoff
	for {
		nc, err := ln.Accept()
		if err == nil {
			backoff = kernel.MinBackoff
			l.serve(nc.(conn), nc)
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if errors.Is(err, os.ErrDeadlineExceeded) { // Close has set it
			l.acceptRest(ln)
			return
		}
		if backoff == kernel.MinBackoff {
			l.srv.opt.Logger.Warn("accept failed", "listener", l.cfg.Load().Name, "error", err)
		}
		l.srv.sleep(backoff)
		backoff = min(2*backoff, kernel.MaxBackoff)
	}
}

// acceptRest accepts the connections that wait at ln. It duplicates the socket: Server.Close waits for calls on ln, and
// holds the lock that serve needs. The client's address comes from the accept: package net has none for a connection
// that was reset meanwhile.
func (l *Listener) acceptRest(ln net.Listener) {
	socket, err := kernel.Duplicate(ln.(syscall.Conn))
	if err != nil {
		return
	}
	defer syscall.Close(socket)
	_ = kernel.AcceptAll(socket, kernel.MaxRest, func(fd int, from netip.AddrPort) {
		if nc, err := kernel.Conn(fd); err == nil {
			l.serve(&clientConn{conn: nc.(conn), client: net.TCPAddrFromAddrPort(from), destination: nc.LocalAddr()}, nc)
		}
		_ = syscall.Close(fd)
	})
}

// serve serves the client at c, which is on below, a connection of the system.
// It closes the connection if that panics.
func (l *Listener) serve(c conn, below net.Conn) {
	if l.srv.opt.Panics.Guard(func() error { l.begin(newEnd(c, below, false)); return nil }) != nil {
		_ = below.Close()
	}
}

// begin starts what serves the client at down.
func (l *Listener) begin(down *end) {
	if l.cfg.Load().ProxyProtocol.Enabled() {
		l.acceptProxied(down)
		return
	}
	release := l.reserve(down.LocalAddr(), down.RemoteAddr())
	if release == nil {
		down.reset()
		return
	}
	l.open(down, release)
}

// open starts the stream of a client at down, which release uncounts at its end.
func (l *Listener) open(down *end, release func()) {
	p := &pair{srv: l.srv, down: down, opener: l.srv.worker().From(l.client(down))}
	run := func() { l.route(p) }
	if name := l.cfg.Load().Service; name != "" {
		t := l.tunnel(p, name)
		if t == nil {
			release()
			return
		}
		run = t.run
	}
	if !l.srv.start(p, func() { defer release(); run() }) {
		release()
	}
}

// client returns the client at down.
func (l *Listener) client(down *end) shard.Client {
	return shard.Client{Listener: l.cfg.Load().Name, Addr: down.RemoteAddr().String()}
}

// tunnel returns the stream of p to a service, or refuses it and returns nil.
func (l *Listener) tunnel(p *pair, service string) *tunnel {
	c, from := l.srv.service(service), l.client(p.down)
	t := l.srv.newTunnel(p, c.Name, c.Timeout)
	t.failureResponse = noResponse
	t.record = l.srv.worker().StreamRecord(from.Listener, from.Addr, c.Name)
	rules := l.srv.opt.Process.Generation().RulesOfStream(from.Listener, c.Name)
	if rules.Refuse(&allow.Call{}, from.Addr, l.srv.opt.Logger) {
		p.opener.Failed(fault.NotAllowed)
		t.fail(fault.NotAllowed)
		return nil
	}
	return t
}

// route carries the stream of p to the service that its ClientHello names. The bytes that were read
// of it are passed on. It runs on the goroutine of the stream.
func (l *Listener) route(p *pair) {
	why := p.why.Load()
	if why == nil && p.srv.opt.Process.Full() {
		p.opener.Failed(fault.Overloaded)
		why = fault.Overloaded
	}
	if why != nil {
		l.refuse(p, why, nil)
		return
	}
	in := newInput(p.srv.opt.Process, nil)
	defer in.free()
	err := readHello(p, in)
	if err == io.EOF && len(in.b) == 0 { // a health check
		_ = p.down.Close()
		return
	}
	var name string
	if err == nil {
		name, err = hello.ServerName(in.b)
	}
	from := l.client(p.down)
	if err != nil {
		if !p.isAborted() {
			l.srv.worker().Refused(from, fault.BadClientHello, "connection refused: no ClientHello of TLS", "error", err)
		}
		var bad *hello.Error
		var alert []byte
		if errors.As(err, &bad) {
			alert = hello.Alert(bad.Alert)
		}
		l.refuse(p, fault.BadClientHello, alert)
		return
	}
	service := l.serviceOf(name)
	if service == "" {
		l.srv.worker().Refused(from, fault.NoRoute, "connection refused: no route takes its server name", "sni", strconv.Quote(name))
		l.refuse(p, fault.NoRoute, hello.Alert(hello.UnrecognizedName))
		return
	}
	_ = p.down.SetReadDeadline(time.Time{})
	if t := l.tunnel(p, service); t != nil {
		t.rest = in.rest(0)
		t.run()
	}
}

// readHello reads until the ClientHello is whole, at most for timeouts.header.
func readHello(p *pair, in *intake) error {
	_ = p.down.SetReadDeadline(time.Now().Add(p.srv.config().Timeouts.Header))
	var reader hello.Reader
	for {
		n := len(in.b)
		if err := in.more(p.down); err != nil {
			return err
		}
		if whole, err := reader.Feed(in.b[n:]); whole || err != nil {
			return err
		}
	}
}

// serviceOf returns the service of the first route that takes a server name, or "".
func (l *Listener) serviceOf(name string) string {
	routes := l.srv.config().Routes
	for i := range routes {
		if m := &routes[i].Match; m.SNI != "" && m.TakesServerName(name) {
			return routes[i].Service
		}
	}
	return ""
}

// refuse ends a stream that has no service, and sends out before; it resets it if out is empty.
func (l *Listener) refuse(p *pair, f *fault.Failure, out []byte) {
	from := l.client(p.down)
	record := l.srv.worker().StreamRecord(from.Listener, from.Addr, "")
	record.End(accesslog.StreamEnd{Failure: f, Cut: p.isAborted()})
	p.refuse(out)
}
