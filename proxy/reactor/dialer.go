package reactor

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/internal/eyeballs"
	"github.com/remora-proxy/remora/internal/unixaddr"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

const maxWaitingDials = 4096

// Dial implements loop.Loop. What may have to wait elsewhere than for the network is left to the
// dialer: TLS handshakes, Unix sockets, addresses that package net has to look at, and hosts with two
// addresses.
func (l *eventLoop) Dial(addr string, timeout time.Duration, s loop.Stream) {
	key, name := "", ""
	if d, ok := s.(loop.Destined); ok {
		key = d.ServiceKey()
	}
	if d, ok := s.(loop.Named); ok {
		name = d.ServerName()
	}
	c := &conn{descriptor: descriptor{loop: l, fd: -1}, stream: s, remote: addr, state: connDialing, config: l.eng.dialTLS(key, addr, name)}
	if d, ok := s.(loop.Negotiated); ok && c.config != nil {
		c.config = requireALPN(c.config, d.ALPN())
	}
	c.timer = &loop.Timer{Fire: c.timerFired}
	l.adopt(c)
	l.After(timeout, c.timer)
	to, err := unmapped(addr)
	other := l.eng.dialOther(key, addr)
	if err == nil && to.Addr().Zone() == "" && c.config == nil && other == "" {
		err = c.connect(to)
	} else {
		err = l.eng.dialer.add(dialing{c, other, time.Now().Add(timeout)})
	}
	if err != nil {
		c.end(cause(err))
	}
}

// unmapped parses an address, and makes an IPv4 one of an IPv6 one that stands for it.
func unmapped(addr string) (netip.AddrPort, error) {
	at, err := netip.ParseAddrPort(addr)
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), err
}

// connect begins to connect to an address, which endConnect ends.
func (c *conn) connect(to netip.AddrPort) error {
	e := c.loop.eng
	if e.ctx.Err() != nil {
		return ErrStopped
	}
	at, ok := e.limits.reserveDial()
	if !ok {
		return loop.ErrDialQueue
	}
	fd, err := kernel.Connect(to)
	if err != nil {
		at.release()
		return err
	}
	c.fd, c.reservation = fd, at
	c.home = c.loop
	c.loop.load.Add(1)
	return c.watch(c, kernel.Output)
}

// endConnect ends a connect, if it has ended.
func (c *conn) endConnect() {
	to, _ := unmapped(c.remote)
	err := kernel.Connected(c.fd, to)
	if errors.Is(err, unix.EINPROGRESS) {
		return // the event was of another socket, that had the descriptor before
	}
	if err == nil {
		err = setStreamOptions(c.fd)
	}
	if err == nil {
		err = c.loop.poller.Change(c.fd, kernel.Input)
	}
	if err != nil {
		c.end(cause(err))
		return
	}
	c.open()
}

// dialer dials on up to max goroutines, each of which dials one connection after another while
// any may be dialled. An address has a quarter of them at most: one that does not respond must not
// take all.
type dialer struct {
	eng *Engine
	max int

	mu      sync.Mutex
	active  int
	waiting []dialing
	dials   map[string]int // in progress, by address
}

// dialing is a dial. The loop has a timer for it and closes c then, so the deadline here only
// frees the goroutine.
type dialing struct {
	c     *conn
	other string // another address of the host, or ""
	until time.Time
}

func (d *dialer) add(w dialing) error {
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
	d.waiting = append(d.waiting, w)
	return nil
}

func (d *dialer) work() {
	for {
		next, ok := d.begin()
		if !ok {
			return
		}
		d.dial(next)
		d.mu.Lock()
		if d.dials[next.c.remote]--; d.dials[next.c.remote] == 0 {
			delete(d.dials, next.c.remote)
		}
		d.mu.Unlock()
	}
}

// begin takes the first waiting dial that may begin. If there is none, the goroutine must end.
func (d *dialer) begin() (next dialing, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.waiting, func(w dialing) bool { return d.dials[w.c.remote] < max(1, d.max/4) })
	if i < 0 {
		d.active--
		if len(d.waiting) == 0 {
			d.waiting = nil
		}
		return dialing{}, false
	}
	next = d.waiting[i]
	d.waiting = slices.Delete(d.waiting, i, i+1)
	d.dials[next.c.remote]++
	return next, true
}

func (d *dialer) dial(w dialing) {
	if d.eng.ctx.Err() == nil && !time.Now().Before(w.until) {
		return // the timer of the loop has closed it
	}
	var nc net.Conn
	var over *secure
	err := loop.ErrDialQueue
	at, ok := d.eng.limits.reserveDial()
	if ok {
		w.c.tried.Store(true)
		nd := net.Dialer{Deadline: w.until}
		nc, err = dialFirst(d.eng.ctx, &nd, w.c.remote, w.other)
	}
	if d.eng.ctx.Err() != nil {
		err = ErrStopped
		if nc != nil {
			_ = nc.Close()
		}
	}
	if err == nil && w.c.config != nil {
		over, err = w.c.handshake(d.eng.ctx, nc, nil, w.until, tls.Client)
		err = d.eng.dialedTLS(nc, w.c.remote, err)
		if err == nil {
			d.eng.countHandshake(over.tls)
		}
	}
	w.c.loop.Post(func() {
		w.c.dialled(nc, over, at, err)
	})
}

// dialled ends a dial of the dialer.
func (c *conn) dialled(nc net.Conn, over *secure, at reservation, err error) {
	if err == nil {
		err = c.takeFrom(nc)
	}
	if err == nil {
		c.secure, c.reservation = over, at
		c.home = c.loop
		c.loop.load.Add(1)
		err = c.arrive()
	} else {
		at.release()
	}
	if err != nil && c.state == connDialing {
		c.end(cause(err))
	}
}

// dialFirst is dialAddr for a host that may have another address.
func dialFirst(ctx context.Context, nd *net.Dialer, addr, other string) (net.Conn, error) {
	return eyeballs.Dial(ctx, eyeballs.Both(addr, other), func(ctx context.Context, addr string) (net.Conn, error) {
		return dialAddr(ctx, nd, addr)
	})
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

// dialedTLS counts the failure of the handshake of a dialled connection, and closes the connection.
func (e *Engine) dialedTLS(nc net.Conn, remote string, err error) error {
	if err == nil {
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
