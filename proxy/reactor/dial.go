package reactor

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// dialing makes the connection of a conn in connDialing. It ends by one of
//
//	onConnected  the kernel has connected the socket of the loop, or failed
//	onDialled    the dialer has connected a socket, with TLS if there is a config, or failed
//	onTimeout    neither has come in time
type dialing struct {
	c      *conn
	timer  loop.Timer
	config func() *tls.Config // of the handshake; nil means plain text
	other  string             // another address of the host, or ""
	until  time.Time          // frees the goroutine of the dialer: the timer has closed c then
	tried  atomic.Bool        // the dialer has begun
}

// endpoints knows of endpoints what Options say.
type endpoints struct {
	tls   func(key, addr, name string) func() *tls.Config // nil means plain text for all services
	other func(key, addr string) string                   // nil means that no host has another address
}

// at returns the TLS configuration of the endpoint at addr, nil for plain text, and another address of its host or "".
func (e *endpoints) at(key, addr, name string) (config func() *tls.Config, other string) {
	if e.tls != nil {
		config = e.tls(key, addr, name)
	}
	if e.other != nil {
		other = e.other(key, addr)
	}
	return config, other
}

// Dial implements loop.Loop. What may have to wait elsewhere than for the network is left to the
// dialer: TLS handshakes, Unix sockets, addresses that package net has to look at, and hosts with two
// addresses.
func (l *eventLoop) Dial(addr string, timeout time.Duration, r loop.Receiver) {
	key, name := "", ""
	if d, ok := r.(loop.Destined); ok {
		key = d.ServiceKey()
	}
	if d, ok := r.(loop.Named); ok {
		name = d.ServerName()
	}
	c := &conn{descriptor: descriptor{loop: l, fd: -1}, receiver: r, remote: addr, state: connDialing}
	d := &dialing{c: c}
	d.config, d.other = l.reactor.endpoints.at(key, addr, name)
	if n, ok := r.(loop.Negotiated); ok && d.config != nil {
		d.config = requireALPN(d.config, n.ALPN())
	}
	d.timer.Fire = d.onTimeout
	c.dial = d
	l.conns.add(c)
	l.After(timeout, &d.timer)
	to, err := unmapped(addr)
	if err == nil && to.Addr().Zone() == "" && d.config == nil && d.other == "" {
		err = d.connect(to)
	} else {
		d.until = time.Now().Add(timeout)
		err = l.reactor.dialer.add(d)
	}
	if err != nil {
		c.end(cause(err))
	}
}

// unmapped parses an address, and makes an IPv4 one of an IPv6 one that stands for it.
func unmapped(addr string) (netip.AddrPort, error) {
	at, err := netip.ParseAddrPort(addr)
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), err
}

// connect begins to connect to an address, which onConnected ends.
func (d *dialing) connect(to netip.AddrPort) error {
	c, r := d.c, d.c.loop.reactor
	if r.ctx.Err() != nil {
		return ErrStopped
	}
	at, ok := r.connections.reserveDial()
	if !ok {
		return loop.ErrDialQueue
	}
	fd, err := kernel.Connect(to)
	if err != nil {
		at.release()
		return err
	}
	c.fd, c.reservation = fd, at
	c.countedOn = c.loop
	c.loop.load.Add(1)
	return c.watch(c, kernel.Output)
}

// onConnected ends a connect, if it has ended.
func (d *dialing) onConnected() {
	c := d.c
	to, _ := unmapped(c.remote)
	err := kernel.Connected(c.fd, to)
	if errors.Is(err, unix.EINPROGRESS) {
		return // the event was of another socket, that had the descriptor before
	}
	if err == nil {
		err = setStreamOptions(c.fd)
	}
	if err == nil {
		err = c.loop.poller.Change(c.fd, kernel.Input)
	}
	if err != nil {
		c.end(cause(err))
		return
	}
	c.open()
}

// onTimeout ends the connection, whose dial takes too long.
func (d *dialing) onTimeout() {
	if d.c.fd < 0 && !d.tried.Load() {
		d.c.end(loop.ErrDialQueue)
		return
	}
	d.c.end(syscall.ETIMEDOUT)
}

// onDialled ends a dial of the dialer.
func (d *dialing) onDialled(nc net.Conn, over *secure, at reservation, err error) {
	c := d.c
	if err == nil {
		err = c.takeFrom(nc)
	}
	if err == nil {
		c.secure, c.reservation = over, at
		c.countedOn = c.loop
		c.loop.load.Add(1)
		err = c.arrive()
	} else {
		at.release()
	}
	if err != nil && c.state == connDialing {
		c.end(cause(err))
	}
}

// cause reduces err to io.EOF or to the error number of the system that it wraps.
func cause(err error) error {
	var errno syscall.Errno
	var timeout interface{ Timeout() bool }
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return io.EOF
	case errors.As(err, &errno):
		return errno
	case errors.As(err, &timeout) && timeout.Timeout():
		return syscall.ETIMEDOUT
	}
	return err
}
