package stream

import (
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
)

// Back-off after a failed accept, mostly for want of descriptors.
const (
	minBackoff = 5 * time.Millisecond
	maxBackoff = time.Second
)

// Listener accepts opaque TCP connections for one service.
type Listener struct {
	srv *Server
	ln  net.Listener
	cfg atomic.Pointer[config.Listener]

	reserve func(remote net.Addr) (release func())

	done chan struct{} // closed when nothing is accepted any more
}

// Addr is where l listens.
func (l *Listener) Addr() net.Addr { return l.ln.Addr() }

// Configure leads the connections that come from now on to where c says. The
// address stays.
func (l *Listener) Configure(c *config.Listener) { l.cfg.Store(c) }

// Close stops accepting. Streams that were accepted go on.
func (l *Listener) Close() error {
	l.srv.mu.Lock()
	delete(l.srv.listeners, l)
	l.srv.mu.Unlock()
	err := l.ln.Close()
	<-l.done
	if errors.Is(err, net.ErrClosed) {
		return nil // Close before, or the Server's
	}
	return err
}

// run accepts until the listener is closed; an error is no reason to end.
func (l *Listener) run() {
	defer close(l.done)
	backoff := minBackoff
	for {
		nc, err := l.ln.Accept()
		if err == nil {
			backoff = minBackoff
			l.take(nc.(*net.TCPConn))
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

// take starts a stream, or resets what is over a limit of connections.
func (l *Listener) take(nc *net.TCPConn) {
	down := &end{conn: nc, tcp: nc}
	release := l.reserve(nc.RemoteAddr())
	if release == nil {
		down.reset()
		return
	}
	service := l.srv.service(l.cfg.Load().Service)
	worker := l.srv.worker()
	t := &tunnel{
		pair: &pair{srv: l.srv, down: down}, words: silent,
		wish:  l.srv.opaque(worker, service.Name, service.Timeout),
		trail: worker.StreamRecord(l.cfg.Load().Name, nc.RemoteAddr().String(), service.Name),
	}
	if !l.srv.start(t.pair, func() { defer release(); t.run() }) {
		release()
	}
}
