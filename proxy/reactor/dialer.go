package reactor

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/internal/eyeballs"
	"github.com/remora-proxy/remora/internal/unixaddr"
	"github.com/remora-proxy/remora/proxy/loop"
)

const maxWaitingDials = 4096

// dialer runs the dials of loops on up to max goroutines, each of which dials one connection after another while
// any may be dialled. An address that does not respond must not take all: an address has a quarter of the goroutines
// at most, and in a full queue the address with the most dials gives way to others.
type dialer struct {
	reactor *Reactor
	max     int

	mu      sync.Mutex
	active  int
	waiting []*dialing
	queued  map[string]int // waiting, by address
	dials   map[string]int // in progress, by address
}

func (d *dialer) add(w *dialing) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.waiting) >= maxWaitingDials && !d.makeRoom(w.c.remote) {
		return loop.ErrDialQueue
	}
	if d.active < d.max && d.mayBegin(w) {
		if !d.reactor.spawn(d.work) {
			return ErrStopped
		}
		d.active++
	}
	d.waiting = append(d.waiting, w)
	d.queued[w.c.remote]++
	return nil
}

// makeRoom makes room in the full queue for a dial to addr, and reports whether it has. Dials whose time is up go first. If
// there are none, the address with the most dials loses its last dial, unless addr has as many, or one fewer.
func (d *dialer) makeRoom(addr string) bool {
	now := time.Now()
	d.waiting = slices.DeleteFunc(d.waiting, func(w *dialing) bool {
		isOver := !now.Before(w.until) // the timer of its loop has closed it
		if isOver {
			subtract(d.queued, w.c.remote)
		}
		return isOver
	})
	if len(d.waiting) < maxWaitingDials {
		return true
	}
	largest, most := "", 0
	for a, n := range d.queued {
		if n > most {
			largest, most = a, n
		}
	}
	if most > d.queued[addr]+1 {
		for i, w := range slices.Backward(d.waiting) {
			if w.c.remote == largest {
				d.remove(i)
				w.c.loop.Post(func() { w.onDialled(nil, nil, reservation{}, loop.ErrDialQueue) })
				return true
			}
		}
	}
	return false
}

// mayBegin reports whether the address of w leaves goroutines to others.
func (d *dialer) mayBegin(w *dialing) bool { return d.dials[w.c.remote] < max(1, d.max/4) }

// remove takes the waiting dial i from the queue.
func (d *dialer) remove(i int) {
	subtract(d.queued, d.waiting[i].c.remote)
	d.waiting = slices.Delete(d.waiting, i, i+1)
}

// subtract uncounts one dial to addr.
func subtract(dials map[string]int, addr string) {
	if dials[addr]--; dials[addr] == 0 {
		delete(dials, addr)
	}
}

func (d *dialer) work() {
	for {
		next, ok := d.begin()
		if !ok {
			return
		}
		d.dial(next)
		d.mu.Lock()
		subtract(d.dials, next.c.remote)
		d.mu.Unlock()
	}
}

// begin takes the first waiting dial that may begin. If there is none, the goroutine must end.
func (d *dialer) begin() (next *dialing, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.waiting, d.mayBegin)
	if i < 0 {
		d.active--
		if len(d.waiting) == 0 {
			d.waiting = nil
		}
		return nil, false
	}
	next = d.waiting[i]
	d.remove(i)
	d.dials[next.c.remote]++
	return next, true
}

func (d *dialer) dial(w *dialing) {
	if d.reactor.ctx.Err() == nil && !time.Now().Before(w.until) {
		return // the timer of the loop has closed it
	}
	var nc net.Conn
	var over *secure
	err := loop.ErrDialQueue
	at, ok := d.reactor.connections.reserveDial()
	if ok {
		w.tried.Store(true)
		err = d.reactor.panics.Guard(func() (err error) {
			nc, over, err = d.connect(w)
			return err
		})
	}
	w.c.loop.Post(func() { w.onDialled(nc, over, at, err) })
}

// connect makes the connection of w. over is nil in plain text.
func (d *dialer) connect(w *dialing) (nc net.Conn, over *secure, err error) {
	ctx := d.reactor.ctx
	nd := net.Dialer{Deadline: w.until}
	nc, err = dialFirst(ctx, &nd, w.c.remote, w.other)
	if ctx.Err() != nil {
		if nc != nil {
			_ = nc.Close()
		}
		return nil, nil, ErrStopped
	}
	if err != nil || w.config == nil {
		return nc, nil, err
	}
	if err = nc.SetDeadline(w.until); err == nil {
		err = d.reactor.panics.Guard(func() (err error) {
			over, err = handshake(ctx, w.c, w.config, dialled{nc, d.reactor.handshakes.computing}, nil, tls.Client)
			return err
		})
	}
	if err != nil {
		_ = nc.Close()
		return nil, nil, d.reactor.tls.failDial(ctx, w.c.remote, err)
	}
	d.reactor.tls.succeed(over.tls)
	return nc, over, nil
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
