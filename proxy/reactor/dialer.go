package reactor

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/internal/unixaddr"
	"github.com/remora-proxy/remora/proxy/loop"
)

const maxWaitingDials = 4096

// dialer dials on up to max goroutines, each of which dials one connection after another while
// any waits. gnet's own dial would ignore the timeout.
type dialer struct {
	eng *Engine
	max int

	mu      sync.Mutex
	active  int
	waiting []dialing
}

// dialing is a dial. The loop has a timer for it and closes c then, so the deadline here only
// frees the goroutine.
type dialing struct {
	c     *conn
	until time.Time
}

func (d *dialer) add(c *conn, until time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.waiting) >= maxWaitingDials {
		return loop.ErrDialQueue
	}
	if d.active < d.max {
		if !d.eng.spawn(d.work) {
			return ErrStopped
		}
		d.active++
	}
	d.waiting = append(d.waiting, dialing{c, until})
	return nil
}

func (d *dialer) work() {
	for {
		d.mu.Lock()
		if len(d.waiting) == 0 {
			d.active--
			d.waiting = nil
			d.mu.Unlock()
			return
		}
		next := d.waiting[0]
		d.waiting[0] = dialing{}
		d.waiting = d.waiting[1:]
		d.mu.Unlock()
		d.dial(next)
	}
}

func (d *dialer) dial(w dialing) {
	if d.eng.ctx.Err() == nil && !time.Now().Before(w.until) {
		return // the timer of the loop has closed it
	}
	var nc net.Conn
	err := loop.ErrDialQueue
	at, ok := d.eng.limits.reserveDial()
	if ok {
		nd := net.Dialer{Deadline: w.until}
		nc, err = dialAddr(d.eng.ctx, &nd, w.c.remote)
	}
	if d.eng.ctx.Err() != nil {
		err = ErrStopped
		if nc != nil {
			_ = nc.Close()
		}
	}
	if err == nil && w.c.config != nil {
		err = w.c.handshake(d.eng.ctx, nc, nil, w.until, tls.Client)
		err = d.eng.dialedTLS(nc, w.c.remote, w.c.over(), err)
	}
	if err == nil {
		w.c.reservation = at
		w.c.loop.load.Add(1)
		if err = w.c.enroll(nc); err != nil {
			w.c.loop.load.Add(-1)
		}
	}
	if err != nil {
		at.release()
		w.c.loop.Post(func() {
			if w.c.state == connDialing {
				w.c.end(cause(err))
			}
		})
	}
}

// fullPause is the pause before another try to connect to a Unix socket whose backlog is full.
const fullPause = time.Millisecond

// dialAddr connects to addr, "ip:port" or a Unix socket. Where TCP would send its SYN again, a Unix
// socket whose backlog is full refuses at once, so it is tried until nd or ctx ends.
func dialAddr(ctx context.Context, nd *net.Dialer, addr string) (net.Conn, error) {
	network, address := unixaddr.Split(addr)
	for {
		nc, err := nd.DialContext(ctx, network, address)
		if err == nil || network != "unix" || !errors.Is(err, unix.EAGAIN) {
			return nc, err
		}
		select {
		case <-time.After(fullPause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// dialedTLS counts the result of the handshake of a dialled connection, and closes the
// connection if it failed. Otherwise over is its TLS.
func (e *Engine) dialedTLS(nc net.Conn, remote string, over *tls.Conn, err error) error {
	if err == nil {
		e.countHandshake(over)
		return nil
	}
	_ = nc.Close()
	if e.ctx.Err() != nil {
		return ErrStopped
	}
	if !errors.Is(err, context.Canceled) { // cancelled here, so no failure of the peer
		e.tlsFailed(remote, err)
	}
	return err
}

// countHandshake counts a handshake that succeeded.
func (e *Engine) countHandshake(over *tls.Conn) {
	e.count.handshakes.Add(1)
	if over.ConnectionState().DidResume {
		e.count.resumed.Add(1)
	}
}

// enroll gives nc to the loop of c and returns when it has arrived there, or an error. It
// blocks, so it must not be called on a loop.
func (c *conn) enroll(nc net.Conn) error {
	return c.loop.enroll(nc, c, &c.arrived)
}

// enroll is conn.enroll for any context of handler. arrived is set when gnet has called OnOpen.
func (l *eventLoop) enroll(nc net.Conn, context any, arrived *bool) error {
	dropZone(nc.LocalAddr())
	dropZone(nc.RemoteAddr())
	l.arrivals <- struct{}{}
	defer func() { <-l.arrivals }()
	l.taskBegins()
	defer l.taskEnds()
	result, err := l.el.Enroll(gnet.NewContext(l.eng.ctx, context), nc)
	if err != nil {
		_ = nc.Close()
		return err
	}
	if r := <-result; r.Err != nil {
		return r.Err
	}
	if !*arrived {
		return errNotEnrolled
	}
	return nil
}

// dropZone clears the zone of an IPv6 address, which is not used. When gnet closes a
// connection, it puts the memory of that string into a pool of byte slices that are written
// to, but package net shares these strings.
func dropZone(a net.Addr) {
	if tcp, ok := a.(*net.TCPAddr); ok {
		tcp.Zone = ""
	}
}
