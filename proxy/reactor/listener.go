package reactor

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/proxy/fair"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
	"github.com/remora-proxy/remora/proxy/reactor/unixsock"
)

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

	// MaxConnections limits the listener's open connections, besides the limits of the Reactor.
	// 0 means no limit of its own.
	MaxConnections int

	// Also are further sockets, which the Listener owns, too: those at parts of its address.
	Also []net.Listener
}

// Listener accepts connections for the loops of a Reactor.
type Listener struct {
	reactor        *Reactor
	sockets        []*listening // the first is at the address of the Listener
	loopback       bool         // only this host can connect
	wildcard       bool         // it listens at several addresses
	loops          []*eventLoop // where connections go
	acceptors      []*acceptor  // one on each loop, of each socket
	accept         func(l loop.Loop, remote string) loop.Receiver
	opts           ListenOptions
	limit          listenerLimit
	newcomers      *fair.Table   // connections without a whole ClientHello; nil without TLS
	overloadTokens chan struct{} // has a token for each refused connection that Overload is sent to
}

// listening is a socket of a Listener.
type listening struct {
	ln net.Listener // closed, but for its file: see release
	mu sync.Mutex   // guards the end of fd
	fd int          // -1 after Close
}

const (
	overloadTime  = 250 * time.Millisecond // limits sending Overload to a refused connection
	maxOverloaded = 64                     // connections that are sent it at a time
)

// Listen accepts connections at addr ("host:port" or a Unix socket) and spreads them over the
// loops. For each, it calls accept on the connection's loop with its RemoteAddr. accept returns the
// receiver, or nil to close the connection. After Stop the error is ErrStopped.
func (r *Reactor) Listen(addr string, o ListenOptions, accept func(l loop.Loop, remote string) loop.Receiver) (*Listener, error) {
	ln, err := Bind(addr)
	if err != nil {
		return nil, err
	}
	return r.Serve(ln, o, accept)
}

// Serve is Listen on a socket from Bind, which it owns, and closes when it returns an error.
func (r *Reactor) Serve(ln net.Listener, o ListenOptions, accept func(l loop.Loop, remote string) loop.Receiver) (*Listener, error) {
	return r.serve(ln, o, accept, r.loops)
}

func (r *Reactor) serve(ln net.Listener, o ListenOptions, accept func(l loop.Loop, remote string) loop.Receiver, loops []*eventLoop) (*Listener, error) {
	l := &Listener{
		reactor: r, loops: loops, accept: accept, opts: o,
		overloadTokens: make(chan struct{}, maxOverloaded),
	}
	if err := l.own(append([]net.Listener{ln}, o.Also...)); err != nil {
		return nil, err
	}
	if o.Transparent != nil && !kernel.Redirects {
		return nil, errors.Join(fmt.Errorf("reactor: a transparent listener %w", kernel.ErrLinuxOnly), l.closeSockets())
	}
	if at, ok := ln.Addr().(*net.TCPAddr); ok {
		l.loopback, l.wildcard = at.IP.IsLoopback(), at.IP.IsUnspecified()
	}
	l.limit.max = int64(o.MaxConnections)
	if o.TLS != nil {
		l.limit.known = func() bool { return o.TLS().ClientAuth >= tls.RequireAnyClientCert }
		l.newcomers = fair.NewTable(placesFor(r.connections.max, l.limit.max))
		l.newcomers.Turnover = true
	}
	for _, s := range l.sockets {
		for _, on := range loops {
			l.acceptors = append(l.acceptors, newAcceptor(l, s.fd, on))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping {
		return nil, errors.Join(ErrStopped, l.closeSockets())
	}
	r.listeners[l] = struct{}{}
	for _, a := range l.acceptors {
		a.loop.Post(a.start)
	}
	return l, nil
}

// own takes the sockets over from the Go runtime. It closes all of them when it returns an error.
func (l *Listener) own(sockets []net.Listener) (failed error) {
	for _, ln := range sockets {
		fd, err := release(ln)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("reactor: serve: %w", err), ln.Close())
			continue
		}
		l.sockets = append(l.sockets, &listening{ln: ln, fd: fd})
		if _, ok := ln.(*net.TCPListener); !ok {
			continue
		}
		if err := setStreamOptions(fd); err != nil { // as Bind has done
			l.reactor.log.Warn("keep-alive probes of a listener may be off: the socket options can't be set", "address", ln.Addr().String(), "error", err)
		}
	}
	if failed != nil {
		failed = errors.Join(failed, l.closeSockets())
	}
	return failed
}

// release returns the socket of ln, which the Go runtime no longer watches: otherwise each connection
// would wake a thread of it, too. ln.Close then only removes the file of a Unix socket.
func release(ln net.Listener) (fd int, err error) {
	switch ln := ln.(type) {
	case *net.TCPListener:
		if fd, err = kernel.Duplicate(ln); err == nil {
			_ = ln.Close() // can't fail: it was open
		}
	case *unixsock.Listener:
		if fd, err = kernel.Duplicate(ln); err == nil {
			_ = ln.Release()
		}
	default:
		err = fmt.Errorf("a %T has no socket that a loop can watch", ln)
	}
	return fd, err
}

// Keep-alive probes of accepted and dialled connections, with the values of package net: the first
// after keepAliveTime of silence, further ones at the same interval. After keepAliveCount probes
// without an acknowledgement the kernel closes the connection.
const (
	keepAliveTime  = 15 * time.Second
	keepAliveCount = 9
)

// setStreamOptions sets the options of a connection, or of a listening socket whose connections
// inherit them.
func setStreamOptions(fd int) error {
	return kernel.SetStreamOptions(fd, keepAliveTime, keepAliveCount)
}

// Addr returns the address that l listens on.
func (l *Listener) Addr() net.Addr { return l.sockets[0].ln.Addr() }

// Socket returns socket i of l, to pass it to another Listener or process: 0 is the one that l was
// made of, the others those of ListenOptions.Also. It may be used until l is closed.
func (l *Listener) Socket(i int) syscall.Conn { return l.sockets[i] }

// SyscallConn implements syscall.Conn.
func (s *listening) SyscallConn() (syscall.RawConn, error) { return rawListener{s}, nil }

// rawListener gives access to a socket of a Listener until it is closed.
type rawListener struct{ s *listening }

// Control implements syscall.RawConn.
func (r rawListener) Control(f func(fd uintptr)) error {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.s.fd < 0 {
		return net.ErrClosed
	}
	f(uintptr(r.s.fd))
	return nil
}

// Read implements syscall.RawConn. Only the loops may wait for the socket.
func (rawListener) Read(func(fd uintptr) bool) error { return errors.ErrUnsupported }

// Write implements syscall.RawConn, as Read.
func (rawListener) Write(func(fd uintptr) bool) error { return errors.ErrUnsupported }

// Close stops accepting, and returns when no loop accepts any more. Connections that wait in the kernel
// are still accepted, lest it resets them. Accepted connections stay open, and may reach their loop
// later. A second call, or one after Stop, returns net.ErrClosed. It must not be called on a loop.
func (l *Listener) Close() error {
	r := l.reactor
	r.mu.Lock()
	if _, open := r.listeners[l]; !open {
		r.mu.Unlock()
		return net.ErrClosed
	}
	delete(r.listeners, l)
	r.helpers.Add(1)
	r.mu.Unlock()
	defer r.helpers.Done()
	return l.close()
}

// close is Close while the loops run.
func (l *Listener) close() error {
	var left sync.WaitGroup
	for _, a := range l.acceptors {
		left.Add(1)
		a.loop.Post(func() { a.stop(); left.Done() })
	}
	left.Wait()
	failed := l.removeFiles()
	accepted := make(chan struct{})
	on := l.loops[0]
	on.Post(func() {
		defer close(accepted)
		for _, s := range l.sockets {
			_ = kernel.AcceptAll(s.fd, kernel.MaxRest, func(fd int, from netip.AddrPort) { l.onAccept(on, fd, from) })
		}
	})
	<-accepted
	return errors.Join(failed, l.closeSockets())
}

// removeFiles removes the file of a Unix socket, before the socket is closed: another process that found
// nobody there would replace it.
func (l *Listener) removeFiles() (failed error) {
	for _, s := range l.sockets {
		if ln, ok := s.ln.(*unixsock.Listener); ok {
			failed = errors.Join(failed, ln.Close())
		}
	}
	return failed
}

// closeSockets closes the sockets, and removes the file of a Unix socket if it is still there.
func (l *Listener) closeSockets() error {
	failed := l.removeFiles()
	for _, s := range l.sockets {
		failed = errors.Join(failed, s.close())
	}
	return failed
}

func (s *listening) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	fd := s.fd
	s.fd = -1
	return os.NewSyscallError("close", unix.Close(fd))
}
