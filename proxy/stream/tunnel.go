package stream

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/remora-proxy/remora/proxy"
)

// tunnel is one stream: a client's connection, and the one to an endpoint that
// its bytes go to. It owns both.
type tunnel struct {
	srv     *Server
	worker  *proxy.Worker // that keeps the account
	service string
	down    *net.TCPConn
	release func()               // gives back the place of down, when all is over
	upgrade *proxy.StreamRequest // nil: opaque from the first byte

	mu      sync.Mutex // guards up and severed
	up      conn
	severed bool
	torn    atomic.Bool // the stream is to end in a reset

	upgraded bool // the endpoint has agreed
}

// run is the stream's life.
func (t *tunnel) run() {
	defer t.release()
	defer t.srv.ended(t)
	lease, fail := t.connect()
	if fail != nil {
		t.refuse(fail)
		return
	}
	status := 0
	if t.upgrade != nil {
		status = http.StatusSwitchingProtocols
		if fail = t.handshake(); fail != nil {
			lease.Failed(fail)
			t.refuse(fail)
		}
		if !t.upgraded {
			reset(t.up)
			lease.Close(false, 0, 0)
			return
		}
	}
	lease.Connected(status)
	in, out := t.relay()
	lease.Close(true, in, out)
}

// refuse tells the client why it can't be served, if it speaks a protocol that
// has words for it. Of an opaque stream only errors_total tells.
func (t *tunnel) refuse(f *proxy.Failure) {
	if t.upgrade == nil || t.srv.ctx.Err() != nil {
		reset(t.down)
		return
	}
	t.finish(t.upgrade.AppendFailure(nil, f, date()))
}

// answer is what the core says to a request for an endpoint.
type answer struct {
	lease *proxy.Lease
	at    proxy.Place
	fail  *proxy.Failure
}

// connect finds an endpoint that takes the connection. Without a Failure there
// is up, and a Lease to close.
func (t *tunnel) connect() (*proxy.Lease, *proxy.Failure) {
	answers := make(chan answer, 1)
	t.worker.Lease(t.service, func(l *proxy.Lease, at proxy.Place, f *proxy.Failure) {
		answers <- answer{l, at, f}
	})
	a := t.await(answers)
	if a.fail != nil {
		return nil, a.fail
	}
	for lease := a.lease; ; {
		err := t.dial(a.at.Addr)
		if err == nil {
			return lease, nil
		}
		if t.srv.ctx.Err() != nil {
			lease.Close(false, 0, 0)
			return nil, proxy.FailDraining
		}
		t.srv.opt.Logger.Debug("endpoint not connected", "service", t.service, "endpoint", a.at.Addr, "error", err)
		lease.Again(func(at proxy.Place, f *proxy.Failure) { answers <- answer{lease, at, f} })
		if a = t.await(answers); a.fail != nil {
			return nil, a.fail // the core has closed it, or its loop is gone
		}
	}
}

// await waits for the core, whose loop may have stopped.
func (t *tunnel) await(answers <-chan answer) (a answer) {
	select {
	case a = <-answers:
		return a
	case <-t.srv.ctx.Done():
		return answer{fail: proxy.FailDraining}
	}
}

func (t *tunnel) dial(addr string) error {
	ctx, cancel := context.WithTimeout(t.srv.ctx, t.srv.opt.Config.Services[t.service].ConnectTimeout)
	defer cancel()
	sock, err := t.srv.opt.Dial(ctx, addr, t.service)
	if err != nil {
		return err
	}
	up := sock.(conn)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.severed {
		reset(up)
		return ErrClosed
	}
	t.up = up
	return nil
}

// cut ends the stream at once, with a reset at both ends.
func (t *tunnel) cut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.severed = true
	reset(t.down)
	if t.up != nil {
		reset(t.up)
	}
}

// conn is one end of a stream: a TCP connection or a Socket on one.
type conn interface {
	net.Conn
	CloseWrite() error
}

// raw is the TCP connection of c, whose bytes may be encrypted ones.
func raw(c conn) *net.TCPConn {
	if over, ok := c.(interface{ NetConn() net.Conn }); ok {
		return over.NetConn().(*net.TCPConn)
	}
	return c.(*net.TCPConn)
}

// reset closes c so that its peer does not take what it got for all there is:
// from below, since the orderly end of TLS would tell it so.
func reset(c conn) {
	nc := raw(c)
	_ = nc.SetLinger(0)
	_ = nc.Close()
	_ = c.Close()
}
