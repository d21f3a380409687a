package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/remora-proxy/remora/internal/unixaddr"
	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/certs"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor"
	"github.com/remora-proxy/remora/proxy/stream"
)

// openListener is a listener whose socket is bound.
type openListener struct {
	name, address, protocol string

	socket   net.Listener
	server   io.Closer                    // *reactor.Listener or *stream.Listener, which closes socket; nil before serve
	core     *proxy.Listener              // the listener as the core knows it
	identity atomic.Pointer[certs.Source] // nil means plain text
	proxies  atomic.Pointer[config.Trust] // whom proxy_protocol trusts
}

// bindError is why no socket listens at an address.
type bindError struct {
	setting, address string // the setting has the address
	err              error
}

// Error implements error.
func (e *bindError) Error() string {
	why := e.err
	if op := (*net.OpError)(nil); errors.As(e.err, &op) {
		why = op.Err // without the address
	}
	hint := ""
	switch {
	case errors.Is(why, syscall.EADDRINUSE):
		hint = "; another process listens there"
	case unixaddr.Is(e.address):
	case errors.Is(why, syscall.EACCES):
		hint = "; a port below 1024 needs a privilege"
	case errors.Is(why, syscall.EADDRNOTAVAIL):
		hint = "; this host does not have that address"
	}
	return fmt.Sprintf("%s: can't listen at %s: %v%s", e.setting, e.address, why, hint)
}

// Unwrap returns the error of the system.
func (e *bindError) Unwrap() error { return e.err }

// bind binds the socket of listeners[i], or uses an inherited one. The listener accepts
// nothing before serve.
func (s *sidecar) bind(c *config.Listener, i int) (*openListener, error) {
	socket, err := s.inherited.socket(c.Address, c.Mode.Bits())
	if err != nil {
		return nil, &bindError{fmt.Sprintf("listeners[%d].address", i), c.Address, err}
	}
	return &openListener{name: c.Name, address: c.Address, protocol: c.Protocol, socket: socket}, nil
}

// serve accepts connections for the listener c of generation g.
func (s *sidecar) serve(l *openListener, c *config.Listener, g *proxy.Generation) (err error) {
	l.core = g.Listener(c.Name)
	l.configure(c, s.identities)
	if l.protocol == config.ProtocolTCP {
		server, failed := s.streams.Serve(l.socket, c)
		if err = failed; err == nil {
			l.server = server
		}
	} else {
		o := reactor.ListenOptions{MaxConnections: c.Connections}
		if c.TLS.Enabled() {
			o.TLS = func() *tls.Config { return l.identity.Load().Server() }
			o.Plaintext = l.core.PlaintextResponse()
		}
		if c.ProxyProtocol.Enabled() {
			o.Proxies = s.proxiesOf(l)
		}
		if c.Transparent {
			o.Transparent = &reactor.Transparent{
				Wait: g.Config().Timeouts.Detect,
				Pass: func(client loop.Socket, to netip.AddrPort, first []byte) {
					s.streams.Pass(l.name, client, to, first)
				},
			}
		}
		server, failed := s.engine.Serve(l.socket, o, func(on loop.Loop, _ string) loop.Stream {
			return l.core.Accept(s.workers[on])
		})
		if err = failed; err == nil {
			l.server = server
		}
	}
	if err != nil {
		return fmt.Errorf("listener %s: %w", c.Name, err)
	}
	s.log.Info("listening", "listener", c.Name, "address", l.socket.Addr().String(), "protocol", c.Protocol,
		"tls", c.TLS.Enabled())
	return nil
}

// configure applies c to the connections that are accepted from now on. c must have
// the same address and protocol, and tls if the listener has it.
func (l *openListener) configure(c *config.Listener, ids identities) {
	l.identity.Store(ids[config.TLSName("listeners", c.Name)])
	proxies := c.ProxyProtocol.Trusts()
	l.proxies.Store(&proxies)
	if streams, ok := l.server.(*stream.Listener); ok {
		streams.Configure(c)
	}
}

// proxiesOf returns what the reactor needs to know of the proxies in front of a listener.
func (s *sidecar) proxiesOf(l *openListener) *reactor.Proxies {
	var next atomic.Uint32
	return &reactor.Proxies{
		Trusts: func(peer netip.Addr) bool { return l.proxies.Load().Contains(peer) },
		Wait:   func() time.Duration { return s.proc.Config().Timeouts.Header },
		Refused: func(remote string, err error) {
			all := s.proc.Workers()
			all[int(next.Add(1))%len(all)].RefusedProxy(l.name, remote, err)
		},
	}
}

// close closes the listener. Accepted connections stay open.
func (l *openListener) close() error {
	if l.server == nil {
		return l.socket.Close()
	}
	return l.server.Close()
}

// bindAll binds the sockets of all listeners.
func (s *sidecar) bindAll() error {
	for i := range s.cfg.Listeners {
		c := &s.cfg.Listeners[i]
		l, err := s.bind(c, i)
		if err != nil {
			return err
		}
		s.listeners[c.Name] = l
	}
	return nil
}

// awaitEndpoints waits until the loops know the endpoints of all services. Clients wait
// meanwhile in the backlog of a socket, so that early requests don't fail. A service
// whose endpoints stay unknown doesn't stop a start, but it stops a hot restart: a
// predecessor must not be replaced by a process that knows less.
func (s *sidecar) awaitEndpoints() error {
	err := s.endpointsKnown(s.proc.Generation())
	if err != nil && s.inherited.predecessor == nil {
		s.log.Warn("a service has no endpoints yet", "error", err)
		return nil
	}
	return err
}

// listen accepts connections for all listeners.
func (s *sidecar) listen() error {
	for i := range s.cfg.Listeners {
		c := &s.cfg.Listeners[i]
		if err := s.serve(s.listeners[c.Name], c, s.proc.Generation()); err != nil {
			return err
		}
	}
	return nil
}
