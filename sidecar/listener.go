package sidecar

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/certs"
	"github.com/remora-proxy/remora/proxy/config"
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

// bind opens the sockets of listeners[i], or takes over those that are open. The listener
// accepts nothing before serve.
func bind(c *config.Listener, i int, open sockets.Open) (*openListener, error) {
	own, err := open.Take(c.Address, c.Mode.Bits())
	if err != nil {
		return nil, &BindError{fmt.Sprintf("listeners[%d].address", i), c.Address, err}
	}
	return &openListener{name: c.Name, address: c.Address, protocol: c.Protocol, sockets: own}, nil
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
