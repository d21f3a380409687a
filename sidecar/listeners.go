package sidecar

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor"
	"github.com/remora-proxy/remora/proxy/stream"
	"github.com/remora-proxy/remora/sidecar/sockets"
)

// listeners are the open listeners of the sidecar: those of the configuration in use, and those that reloads have
// removed and that still accept.
type listeners struct {
	log     *slog.Logger
	reactor *reactor.Reactor
	proc    *proxy.Process
	workers map[loop.Loop]*proxy.Worker
	streams *stream.Server

	byName  map[string]*openListener // those of the configuration
	removed removedListeners
}

// bindAll binds the sockets of all listeners of cfg, or takes over those that are open.
func (s *listeners) bindAll(cfg *config.Config, open sockets.Open) error {
	for i := range cfg.Listeners {
		c := &cfg.Listeners[i]
		l, err := bind(c, i, open)
		if err != nil {
			return err
		}
		s.byName[c.Name] = l
	}
	return nil
}

// serveAll accepts connections for all listeners of generation g, whose identities are ids.
func (s *listeners) serveAll(g *proxy.Generation, ids identities) error {
	cfg := g.Config()
	for i := range cfg.Listeners {
		c := &cfg.Listeners[i]
		if err := s.serve(s.byName[c.Name], c, g, ids); err != nil {
			return err
		}
	}
	return nil
}

// serve accepts connections for the listener c of generation g, whose identities are ids.
func (s *listeners) serve(l *openListener, c *config.Listener, g *proxy.Generation, ids identities) (err error) {
	l.core = g.Listener(c.Name)
	l.configure(c, ids)
	first, also := l.sockets[0], l.sockets[1:]
	if l.protocol == config.ProtocolTCP {
		server, failed := s.streams.Serve(first, c, also...)
		if err = failed; err == nil {
			l.server = server
		}
	} else {
		o := reactor.ListenOptions{MaxConnections: c.Connections, Also: also}
		if c.TLS.Enabled() {
			o.TLS = func() *tls.Config { return l.identity.Load().Server() }
			o.Plaintext = l.core.PlaintextResponse()
		}
		if c.ProxyProtocol.Enabled() {
			o.Proxies = s.proxiesOf(l)
		}
		if c.Transparent {
			o.Transparent = &reactor.Transparent{
				Wait:    g.Config().Timeouts.Detect,
				Guarded: func() bool { return s.proc.Generation().Guarded() },
				Pass: func(client loop.Socket, to netip.AddrPort, first []byte) {
					s.streams.Pass(l.name, client, to, first)
				},
			}
		}
		server, failed := s.reactor.Serve(first, o, func(on loop.Loop, _ string) loop.Receiver {
			return l.core.Accept(s.workers[on])
		})
		if err = failed; err == nil {
			l.server = server
		}
	}
	if err != nil {
		return fmt.Errorf("listener %s: %w", c.Name, err)
	}
	s.log.Info("listening", "listener", c.Name, "address", first.Addr().String(), "protocol", c.Protocol,
		"tls", c.TLS.Enabled())
	return nil
}

// proxiesOf returns what the reactor needs to know of the proxies in front of a listener.
func (s *listeners) proxiesOf(l *openListener) *reactor.Proxies {
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

// ownAll makes this process remove the files of Unix sockets at its end.
func (s *listeners) ownAll(cfg *config.Config) {
	for i := range cfg.Listeners {
		c := &cfg.Listeners[i]
		s.own(s.byName[c.Name], c)
	}
}

// own makes this process remove the file of l, if it is a Unix socket, at its end, and gives the file its mode.
func (s *listeners) own(l *openListener, c *config.Listener) {
	if err := l.own(c.Mode.Bits()); err != nil {
		s.log.Warn("the mode of a Unix socket is unchanged", "listener", l.name, "error", err)
	}
}

// accepting returns the listeners that accept. Listeners that reloads have removed come first.
func (s *listeners) accepting() []*openListener {
	return slices.AppendSeq(s.removed.list(), maps.Values(s.byName))
}

// closeWhere closes the listeners for which which returns true.
func (s *listeners) closeWhere(which func(l *openListener) bool) {
	for _, l := range s.byName {
		if which(l) {
			s.close(l)
		}
	}
}

// close closes a listener. Its connections stay open.
func (s *listeners) close(l *openListener) {
	if err := l.close(); err != nil {
		s.log.Warn("listener not closed", "listener", l.name, "error", err)
	}
}

// stop closes the listeners of the configuration.
func (s *listeners) stop() {
	for _, l := range s.byName {
		_ = l.close() // may be closed already, by a drain
	}
}

// duplicateSockets returns duplicates of the sockets of listeners, and the listener of each. Closed listeners have
// none. Of two sockets at one address, that of the later listener counts.
func duplicateSockets(listeners []*openListener) (open sockets.Open, from map[net.Listener]*openListener) {
	open, from = make(sockets.Open), make(map[net.Listener]*openListener)
	for _, l := range listeners {
		for address, socket := range l.open() {
			ln, err := reactor.Duplicate(socket)
			if err != nil { // it is closed, or there is no descriptor: then binding says so
				continue
			}
			ln = sockets.Adopt(ln, address)
			if !sockets.HasFixedPort(address) { // then several listeners may have this address
				address = ln.Addr().String()
			}
			if same := open[address]; same != nil {
				_ = same.Close()
			}
			open[address], from[ln] = ln, l
		}
	}
	return open, from
}

// removedListeners are the listeners that reloads have removed and that still accept.
type removedListeners struct {
	// takeover is held to close a listener. A reload or a hot restart holds it while others may take over
	// the sockets of these listeners: a socket that closes on the way would lose its file.
	takeover sync.Mutex

	mu  sync.Mutex
	set map[*openListener]struct{}
}

func (all *removedListeners) add(l *openListener) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.set == nil {
		all.set = make(map[*openListener]struct{})
	}
	all.set[l] = struct{}{}
}

func (all *removedListeners) list() []*openListener {
	all.mu.Lock()
	defer all.mu.Unlock()
	return slices.Collect(maps.Keys(all.set))
}

// remove removes a listener once closing has closed it.
func (all *removedListeners) remove(l *openListener, closing func(*openListener)) {
	all.takeover.Lock()
	defer all.takeover.Unlock()
	closing(l)
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.set, l)
}
