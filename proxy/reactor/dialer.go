package reactor

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/remora-proxy/remora/proxy/loop"
)

// maxWaitingDials bounds the dials that wait for a goroutine.
const maxWaitingDials = 4096

// dialer connects. It has up to max goroutines, each dialling one connection
// after another while any waits. gnet's own dial would ignore the timeout.
type dialer struct {
	eng *Engine
	max int

	mu      sync.Mutex
	active  int
	waiting []dialing
}

// dialing is a connection to be, and until when. Its loop has a timer on it too
// and ends it then, so here the deadline only frees the goroutine.
type dialing struct {
	c     *conn
	until time.Time
}

// add dials c as soon as a goroutine is free.
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

// work dials until nothing waits.
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
		return // its loop has ended it
	}
	nd := net.Dialer{Deadline: w.until}
	nc, err := nd.DialContext(d.eng.ctx, "tcp", w.c.remote)
	if d.eng.ctx.Err() != nil {
		err = ErrStopped
		if nc != nil {
			_ = nc.Close()
		}
	}
	if err == nil && w.c.config != nil {
		err = d.eng.shaken(nc, w.c.remote, w.c.handshake(d.eng.ctx, nc, w.until, tls.Client, w.c.config()))
	}
	if err == nil {
		w.c.loop.load.Add(1)
		if err = w.c.enroll(nc); err != nil {
			w.c.loop.load.Add(-1)
		}
	}
	if err != nil {
		w.c.loop.Post(func() {
			if w.c.state == connDialing {
				w.c.end(cause(err))
			}
		})
	}
}

// shaken counts how the handshake of a dialled connection has ended, and closes
// it if that was badly.
func (e *Engine) shaken(nc net.Conn, remote string, err error) error {
	if err == nil {
		e.count.handshakes.Add(1)
		return nil
	}
	_ = nc.Close()
	if e.ctx.Err() != nil {
		return ErrStopped
	}
	if !errors.Is(err, context.Canceled) { // nobody's failure
		e.tlsFailed(remote, err)
	}
	return err
}

// configOf is where to ask for the TLS configuration of a connection to the
// service; nil: it is plain text.
func (e *Engine) configOf(service string) func() *tls.Config {
	if e.dialTLS == nil {
		return nil
	}
	return e.dialTLS(service)
}

// enroll hands nc to c's loop and returns when it has arrived there, or why it
// has not. It blocks, and so is never called on a loop.
func (c *conn) enroll(nc net.Conn) error {
	dropZone(nc.LocalAddr())
	dropZone(nc.RemoteAddr())
	c.loop.errandBegins()
	defer c.loop.errandEnds()
	result, err := c.loop.el.Enroll(gnet.NewContext(c.loop.eng.ctx, c), nc)
	if err != nil {
		_ = nc.Close()
		return err
	}
	if r := <-result; r.Err != nil {
		return r.Err
	}
	if !c.arrived {
		return errNotEnrolled
	}
	return nil
}

// dropZone clears the zone of an IPv6 address. When it closes a connection,
// gnet puts that string's memory into a pool of byte slices, to be written to:
// but the strings are shared with package net. An accepted or dialled socket's
// addresses are its own, so nobody misses it.
func dropZone(a net.Addr) {
	if tcp, ok := a.(*net.TCPAddr); ok {
		tcp.Zone = ""
	}
}
