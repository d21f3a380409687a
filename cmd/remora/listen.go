package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/certs"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor"
	"github.com/remora-proxy/remora/proxy/stream"
)

// listening is an open listener.
type listening struct {
	name, address, protocol string

	socket   net.Listener // bound
	server   io.Closer    // *reactor.Listener or *stream.Listener, who closes socket; nil before serve
	entrance *proxy.Listener
	identity atomic.Pointer[certs.Source] // nil: plain text
}

// bind opens the socket of a listener, or takes the one that was inherited; nothing
// is accepted before serve.
func (s *sidecar) bind(c *config.Listener) (*listening, error) {
	socket, err := s.inherited.socket(c.Address)
	if err != nil {
		return nil, fmt.Errorf("listener %s: %w", c.Name, err)
	}
	return &listening{name: c.Name, address: c.Address, protocol: c.Protocol, socket: socket}, nil
}

// serve accepts connections for the listener c of generation g.
func (s *sidecar) serve(l *listening, c *config.Listener, g *proxy.Generation) (err error) {
	l.entrance = g.Listener(c.Name)
	l.identity.Store(s.identities.source(listenerIdentity(c.Name)))
	if l.protocol == config.ProtocolTCP {
		l.server, err = s.streams.Serve(l.socket, c)
	} else {
		o := reactor.ListenOptions{MaxConnections: c.Connections}
		if c.TLS.Enabled() {
			o.TLS = func() *tls.Config { return l.identity.Load().Server() }
		}
		if c.Transparent {
			o.Transparent = &reactor.Transparent{
				Wait: g.Config().Timeouts.Detect,
				Pass: func(client loop.Socket, to netip.AddrPort, first []byte) {
					s.streams.Pass(l.name, client, to, first)
				},
			}
		}
		l.server, err = s.engine.Serve(l.socket, o, func(on loop.Loop, _ string) loop.Stream {
			return l.entrance.Accept(s.workers[on])
		})
	}
	if err != nil {
		return fmt.Errorf("listener %s: %w", c.Name, err)
	}
	s.log.Info("listening", "listener", c.Name, "address", l.socket.Addr().String(), "protocol", c.Protocol,
		"tls", c.TLS.Enabled())
	return nil
}

// follow leads the connections that come from now on to where c says. Address,
// protocol and whether there is TLS are as they were.
func (l *listening) follow(c *config.Listener, ids identities) {
	l.identity.Store(ids.source(listenerIdentity(c.Name)))
	if streams, ok := l.server.(*stream.Listener); ok {
		streams.Configure(c)
	}
}

// close ends the listener; what it has accepted stays.
func (l *listening) close() error {
	if l.server == nil {
		return l.socket.Close()
	}
	return l.server.Close()
}

// bindAll opens the sockets of all listeners.
func (s *sidecar) bindAll() error {
	for i := range s.cfg.Listeners {
		c := &s.cfg.Listeners[i]
		l, err := s.bind(c)
		if err != nil {
			return err
		}
		s.listeners[c.Name] = l
	}
	return nil
}

// learn waits until the loops know the endpoints of all services: whoever comes
// meanwhile waits in the backlog of a socket, and does not fail for being early.
// Services that nobody tells of stop a start as little as they stop the others, but
// no process gives way to one that knows less than itself.
func (s *sidecar) learn() error {
	err := s.known(s.proc.Generation())
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
