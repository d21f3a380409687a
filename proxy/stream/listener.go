package stream

import (
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy/allow"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
)

// Back-off after a failed accept. The usual cause is a lack of descriptors.
const (
	minBackoff = 5 * time.Millisecond
	maxBackoff = time.Second
)

// Listener accepts opaque TCP connections for one service.
type Listener struct {
	srv *Server
	ln  net.Listener
	cfg atomic.Pointer[config.Listener]

	reserve func(local, remote net.Addr) (release func())

	done chan struct{} // closed when the accepting goroutine has ended
}

// Addr returns the address that l listens on.
func (l *Listener) Addr() net.Addr { return l.ln.Addr() }

// Configure applies c to the connections accepted from now on. The address does not change.
func (l *Listener) Configure(c *config.Listener) { l.cfg.Store(c) }

// Close stops accepting. Accepted streams continue. A second Close returns nil.
func (l *Listener) Close() error {
	l.srv.mu.Lock()
	delete(l.srv.listeners, l)
	l.srv.mu.Unlock()
	err := l.ln.Close()
	<-l.done
	if errors.Is(err, net.ErrClosed) {
		return nil // closed before, or by Server.Close
	}
	return err
}

// run accepts until the listener is closed. After any other error it tries again.
func (l *Listener) run() {
	defer close(l.done)
	backoff := minBackoff
	for {
		nc, err := l.ln.Accept()
		if err == nil {
			backoff = minBackoff
			l.serve(nc.(*net.TCPConn))
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if backoff == minBackoff {
			l.srv.opt.Logger.Warn("accept failed", "listener", l.cfg.Load().Name, "error", err)
		}
		l.srv.sleep(backoff)
		backoff = min(2*backoff, maxBackoff)
	}
}

func (l *Listener) serve(nc *net.TCPConn) {
	down := &end{conn: nc, tcp: nc}
	release := l.reserve(nc.LocalAddr(), nc.RemoteAddr())
	if release == nil {
		down.reset()
		return
	}
	service := l.srv.service(l.cfg.Load().Service)
	worker := l.srv.worker()
	name, peer := l.cfg.Load().Name, nc.RemoteAddr().String()
	by := worker.From(exchange.Client{Listener: name, Addr: peer})
	t := &tunnel{
		pair: &pair{srv: l.srv, down: down, by: by}, failureResponse: noResponse,
		endpointQuery: l.srv.opaque(by, service.Name, service.Timeout),
		record:        worker.StreamRecord(name, peer, service.Name),
	}
	rules := l.srv.opt.Process.Generation().RulesOfStream(name, service.Name)
	if rules.Refuse(&allow.Call{}, peer, l.srv.opt.Logger) {
		by.Failed(fault.NotAllowed)
		t.fail(fault.NotAllowed)
		release()
		return
	}
	if !l.srv.start(t.pair, func() { defer release(); t.run() }) {
		release()
	}
}
