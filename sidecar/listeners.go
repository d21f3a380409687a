package sidecar

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/remora-proxy/remora/internal/unixaddr"
	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/certs"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor"
	"github.com/remora-proxy/remora/proxy/reactor/unixsock"
	"github.com/remora-proxy/remora/proxy/stream"
	"github.com/remora-proxy/remora/sidecar/sockets"
)

// openListener is a listener whose socket is bound.
type openListener struct {
	name, address, protocol string

	sockets  []net.Listener // that at its address, and those at parts of it, as sockets.Open.Take returns them
	server   io.Closer      // *reactor.Listener or *stream.Listener, which closes the sockets; nil before serve
	closing  sync.Once
	core     *proxy.Listener              // the listener as the core knows it
	identity atomic.Pointer[certs.Source] // nil means plain text
	proxies  atomic.Pointer[config.Trust] // whom proxy_protocol trusts
}

// BindError is why no socket listens at an address.
type BindError struct {
	Setting, address string // the setting has the address
	err              error
}

// Error implements error.
func (e *BindError) Error() string {
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
	return fmt.Sprintf("%s: can't listen at %s: %v%s", e.Setting, e.address, why, hint)
}

// Unwrap returns the error of the system.
func (e *BindError) Unwrap() error { return e.err }

// bind opens the sockets of listeners[i], or takes over those that are open. The listener
// accepts nothing before serve.
func bind(c *config.Listener, i int, open sockets.Open) (*openListener, error) {
	own, err := open.Take(c.Address, c.Mode.Bits())
	if err != nil {
		return nil, &BindError{fmt.Sprintf("listeners[%d].address", i), c.Address, err}
	}
	return &openListener{name: c.Name, address: c.Address, protocol: c.Protocol, sockets: own}, nil
}

// serve accepts connections for the listener c of generation g.
func (s *Sidecar) serve(l *openListener, c *config.Listener, g *proxy.Generation) (err error) {
	l.core = g.Listener(c.Name)
	l.configure(c, s.identities)
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
		server, failed := s.engine.Serve(first, o, func(on loop.Loop, _ string) loop.Stream {
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

// configure applies c, which continues the listener, to the connections that are accepted from now on.
func (l *openListener) configure(c *config.Listener, ids identities) {
	l.identity.Store(ids[config.TLSName("listeners", c.Name)])
	proxies := c.ProxyProtocol.Trusts()
	l.proxies.Store(&proxies)
	if streams, ok := l.server.(*stream.Listener); ok {
		streams.Configure(c)
	}
}

// proxiesOf returns what the reactor needs to know of the proxies in front of a listener.
func (s *Sidecar) proxiesOf(l *openListener) *reactor.Proxies {
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

// close closes the listener. Accepted connections stay open. A second call does nothing.
func (l *openListener) close() (failed error) {
	l.closing.Do(func() {
		if l.server != nil {
			failed = l.server.Close()
			return
		}
		for _, ln := range l.sockets {
			failed = errors.Join(failed, ln.Close())
		}
	})
	return failed
}

// bindAll binds the sockets of all listeners.
func (s *Sidecar) bindAll() error {
	for i := range s.cfg.Listeners {
		c := &s.cfg.Listeners[i]
		l, err := bind(c, i, s.inherited.sockets)
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
func (s *Sidecar) awaitEndpoints() error {
	err := s.endpointsKnown(s.proc.Generation())
	if err != nil && s.inherited.predecessor == nil {
		s.log.Warn("a service has no endpoints yet", "error", err)
		return nil
	}
	return err
}

// own makes this process remove the files of Unix sockets at its end, also of those of a predecessor
// that it does not use.
func (s *Sidecar) own() {
	s.inherited.own()
	for _, ln := range s.adminSockets {
		if ln, ok := ln.(*unixsock.Listener); ok {
			ln.Own()
		}
	}
	for i := range s.cfg.Listeners {
		c := &s.cfg.Listeners[i]
		s.ownListener(s.listeners[c.Name], c)
	}
}

func (s *Sidecar) ownListener(l *openListener, c *config.Listener) {
	if err := l.own(c.Mode.Bits()); err != nil {
		s.log.Warn("the mode of a Unix socket is unchanged", "listener", l.name, "error", err)
	}
}

// listen accepts connections for all listeners.
func (s *Sidecar) listen() error {
	for i := range s.cfg.Listeners {
		c := &s.cfg.Listeners[i]
		if err := s.serve(s.listeners[c.Name], c, s.proc.Generation()); err != nil {
			return err
		}
	}
	return nil
}

// open returns the sockets of the listener by their address.
func (l *openListener) open() map[string]syscall.Conn {
	all := make(map[string]syscall.Conn, len(l.sockets))
	for i, ln := range l.sockets {
		address := l.address
		if i > 0 {
			address = ln.Addr().String()
		}
		if served, ok := l.server.(*reactor.Listener); ok {
			all[address] = served.Socket(i) // the loops have taken the socket over
		} else {
			all[address] = ln.(syscall.Conn)
		}
	}
	return all
}

// own gives the file of a Unix socket its mode, and removes it at the end.
func (l *openListener) own(mode fs.FileMode) (failed error) {
	for _, ln := range l.sockets {
		if ln, ok := ln.(*unixsock.Listener); ok {
			ln.Own()
			failed = errors.Join(failed, ln.SetMode(mode))
		}
	}
	return failed
}

// disown leaves the file of a Unix socket to the listener that has taken over the socket.
func (l *openListener) disown() {
	for _, ln := range l.sockets {
		if ln, ok := ln.(*unixsock.Listener); ok {
			ln.Disown()
		}
	}
}

// bind opens the sockets of new listeners. It is the last step before apply: a new socket may
// get connections at once that an ending listener had until then.
func (c *change) bind() error {
	open := c.openSockets()
	defer open.Close()
	for i := range c.cfg.Listeners {
		l := &c.cfg.Listeners[i]
		if c.continues(l) {
			continue
		}
		opened, err := bind(l, i, open)
		if err != nil {
			return &refusal{refusedListen, err}
		}
		c.opened = append(c.opened, opened)
	}
	return nil
}

// continues reports whether a listener in use becomes l.
func (c *change) continues(l *config.Listener) bool {
	was := c.s.cfg.Listener(l.Name)
	return was != nil && l.Continues(was)
}

// openSockets returns duplicates of the sockets of the listeners that this change or an earlier one
// ends.
func (c *change) openSockets() (open sockets.Open) {
	ending := c.s.leaving.list()
	for name, l := range c.s.listeners {
		if next := c.cfg.Listener(name); next == nil || !c.continues(next) {
			ending = append(ending, l)
		}
	}
	open, c.from = duplicateSockets(ending)
	return open
}

// duplicateSockets returns duplicates of the sockets of listeners, and whose each is. Closed listeners
// have none. Of two sockets at one address the later listener's counts.
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

// updateListeners accepts on new listeners, configures the others, and returns those
// that must be closed.
func (c *change) updateListeners() (closed []*openListener) {
	s := c.s
	next := make(map[string]*openListener, len(c.cfg.Listeners))
	for _, l := range c.opened {
		next[l.name] = l
		for _, ln := range l.sockets {
			if was := c.from[ln]; was != nil {
				c.succeed(was)
			}
		}
	}
	for i := range c.cfg.Listeners {
		l := &c.cfg.Listeners[i]
		if opened := next[l.Name]; opened != nil {
			if err := s.serve(opened, l, c.gen); err != nil { // the process is ending
				s.log.Error("listener not served", "error", err)
			}
			s.ownListener(opened, l)
			continue
		}
		next[l.Name] = s.listeners[l.Name]
		next[l.Name].configure(l, c.identities)
	}
	for name, l := range s.listeners {
		if next[name] != l {
			closed = append(closed, l)
			s.leaving.add(l)
		}
	}
	s.listeners = next
	return closed
}

// succeed closes a listener one of whose sockets another one has: both would share its connections.
func (c *change) succeed(l *openListener) {
	l.disown()
	c.s.closeListener(l)
}

// leaving are the listeners that reloads have removed and that still accept.
type leaving struct {
	// passing is held to close a listener. A reload or a hot restart holds it while others may take over
	// the sockets of these listeners: a socket that closes on the way would lose its file.
	passing sync.Mutex

	mu  sync.Mutex
	set map[*openListener]struct{}
}

func (all *leaving) add(l *openListener) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.set == nil {
		all.set = make(map[*openListener]struct{})
	}
	all.set[l] = struct{}{}
}

func (all *leaving) list() []*openListener {
	all.mu.Lock()
	defer all.mu.Unlock()
	return slices.Collect(maps.Keys(all.set))
}

// remove removes a listener once closing has closed it.
func (all *leaving) remove(l *openListener, closing func(*openListener)) {
	all.passing.Lock()
	defer all.passing.Unlock()
	closing(l)
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.set, l)
}
