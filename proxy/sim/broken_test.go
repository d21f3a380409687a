package sim

import (
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// brokenLoop, brokenConn and brokenReceiver pass on each call that the mutant does not
// override.
type brokenLoop struct {
	loop.Loop
	now    func() time.Duration
	after  func(d time.Duration, t *loop.Timer)
	stop   func(t *loop.Timer)
	deferF func(f *loop.Flush)
	post   func(f func())
	dial   func(addr string, timeout time.Duration, r loop.Receiver)

	data     func(r *brokenReceiver, b []byte)
	end      func(r *brokenReceiver) bool
	close    func(r *brokenReceiver, err error)
	write    func(c *brokenConn, b []byte)
	parts    func(c *brokenConn, parts [][]byte)
	buffered func(c *brokenConn) int
	room     func(c *brokenConn, left int, f *loop.Flush)
	closing  func(c *brokenConn)
	drain    func(c *brokenConn)
	finish   func(c *brokenConn)
	detach   func(c *brokenConn) (loop.Socket, error)

	setReceiver func(c *brokenConn, r loop.Receiver)

	last *brokenConn // the connection opened last
}

func (l *brokenLoop) Now() time.Duration {
	if l.now != nil {
		return l.now()
	}
	return l.Loop.Now()
}

func (l *brokenLoop) After(d time.Duration, t *loop.Timer) {
	if l.after != nil {
		l.after(d, t)
		return
	}
	l.Loop.After(d, t)
}

func (l *brokenLoop) Stop(t *loop.Timer) {
	if l.stop != nil {
		l.stop(t)
		return
	}
	l.Loop.Stop(t)
}

func (l *brokenLoop) Defer(f *loop.Flush) {
	if l.deferF != nil {
		l.deferF(f)
		return
	}
	l.Loop.Defer(f)
}

func (l *brokenLoop) Post(f func()) {
	if l.post != nil {
		l.post(f)
		return
	}
	l.Loop.Post(f)
}

func (l *brokenLoop) Dial(addr string, timeout time.Duration, r loop.Receiver) {
	if l.dial != nil {
		l.dial(addr, timeout, r)
		return
	}
	l.Loop.Dial(addr, timeout, l.wrap(r))
}

func (l *brokenLoop) wrap(r loop.Receiver) loop.Receiver {
	return &brokenReceiver{Receiver: r, l: l}
}

type brokenReceiver struct {
	loop.Receiver
	l *brokenLoop
	c *brokenConn
}

func (r *brokenReceiver) OnOpen(c loop.Conn) {
	r.c = &brokenConn{Conn: c, l: r.l, r: r}
	r.l.last = r.c
	r.Receiver.OnOpen(r.c)
}

func (r *brokenReceiver) OnData(b []byte) {
	if r.l.data != nil {
		r.l.data(r, b)
		return
	}
	r.Receiver.OnData(b)
}

func (r *brokenReceiver) OnEnd() bool {
	receiver, ok := r.Receiver.(loop.HalfCloser)
	switch {
	case !ok:
		return false
	case r.l.end != nil:
		return r.l.end(r)
	}
	return receiver.OnEnd()
}

func (r *brokenReceiver) OnClose(err error) {
	if r.c != nil {
		r.c.gone = true
	}
	if r.l.close != nil {
		r.l.close(r, err)
		return
	}
	r.Receiver.OnClose(err)
}

type brokenConn struct {
	loop.Conn
	l    *brokenLoop
	r    *brokenReceiver
	gone bool
}

func (c *brokenConn) Write(b []byte) {
	if c.l.write != nil {
		c.l.write(c, b)
		return
	}
	c.Conn.Write(b)
}

func (c *brokenConn) WriteParts(parts [][]byte) {
	if c.l.parts != nil {
		c.l.parts(c, parts)
		return
	}
	c.Conn.WriteParts(parts)
}

func (c *brokenConn) Buffered() int {
	if c.l.buffered != nil {
		return c.l.buffered(c)
	}
	return c.Conn.Buffered()
}

func (c *brokenConn) AwaitRoom(left int, f *loop.Flush) {
	if c.l.room != nil {
		c.l.room(c, left, f)
		return
	}
	c.Conn.AwaitRoom(left, f)
}

func (c *brokenConn) Close() {
	if c.l.closing != nil {
		c.l.closing(c)
		return
	}
	c.Conn.Close()
}

func (c *brokenConn) Drain() {
	if c.l.drain != nil {
		c.l.drain(c)
		return
	}
	c.Conn.Drain()
}

func (c *brokenConn) Finish() {
	if c.l.finish != nil {
		c.l.finish(c)
		return
	}
	c.Conn.Finish()
}

func (c *brokenConn) Detach() (loop.Socket, error) {
	if c.l.detach != nil {
		return c.l.detach(c)
	}
	return c.Conn.Detach()
}

func (c *brokenConn) SetReceiver(r loop.Receiver) {
	if c.l.setReceiver != nil {
		c.l.setReceiver(c, r)
		return
	}
	c.r = &brokenReceiver{Receiver: r, l: c.l, c: c}
	c.Conn.SetReceiver(c.r)
}
