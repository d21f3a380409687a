package sim

import (
	"net/netip"
	"strconv"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// Path is the network from one host to another, in that direction.
type Path struct {
	Latency   time.Duration // shortest time that a segment takes
	Jitter    time.Duration // random addition to Latency, at most
	Bandwidth int64         // bytes per second, shared by all connections; 0 means no limit
	Reset     float64       // probability that a segment breaks its connection
	Refuse    float64       // probability that a dial is refused
	Lose      float64       // probability that a dial times out
}

// DefaultNet returns the paths of a new World: 10 to 30 µs within a host, 100 to
// 200 µs between hosts, no limits, no faults.
func DefaultNet(from, to string) Path {
	if from == to {
		return Path{Latency: 10 * time.Microsecond, Jitter: 20 * time.Microsecond}
	}
	return Path{Latency: 100 * time.Microsecond, Jitter: 100 * time.Microsecond}
}

// Net sets the network: path returns the Path between two hosts, and is called once for
// each direction. Segments on their way are not affected.
func (w *World) Net(path func(from, to string) Path) {
	w.net = path
	for _, ln := range w.linkList {
		ln.path = path(ln.from.name, ln.to.name)
	}
}

// host is a machine: loops share its address and its links.
type host struct {
	name  string
	ip    netip.Addr
	ports int // ephemeral ports given out

	down   bool    // by Vanish: it sends nothing
	ghosts []*conn // connections that Vanish ended without a notice to the peer
}

func (w *World) host(name string) *host {
	h := w.hosts[name]
	if h == nil {
		n := len(w.hosts) + 1
		h = &host{name: name, ip: netip.AddrFrom4([4]byte{10, 99, byte(n >> 8), byte(n)})}
		w.hosts[name] = h
	}
	return h
}

// link is the network from one host to another.
type link struct {
	from, to *host
	path     Path
	free     time.Duration // when the last byte accepted so far has left
	cut      bool          // partitioned
}

func (w *World) link(from, to *host) *link {
	ln := w.links[[2]*host{from, to}]
	if ln == nil {
		ln = &link{from: from, to: to, path: w.net(from.name, to.name)}
		w.links[[2]*host{from, to}] = ln
		w.linkList = append(w.linkList, ln)
	}
	return ln
}

// delay returns a random time for one segment.
func (ln *link) delay(w *World) time.Duration {
	d := ln.path.Latency
	if ln.path.Jitter > 0 {
		d += time.Duration(w.rand.Int64N(int64(ln.path.Jitter)))
	}
	return d
}

// occupy sends n bytes after those being sent. It returns when the last byte has left.
func (ln *link) occupy(now time.Duration, n int) time.Duration {
	if ln.path.Bandwidth <= 0 {
		return now
	}
	ln.free = max(ln.free, now) + time.Duration(int64(n)*int64(time.Second)/ln.path.Bandwidth)
	return ln.free
}

// Busy returns the time at which the last byte leaves that limited bandwidth delays.
// Later changes of the Net don't affect it.
func (w *World) Busy() time.Duration {
	var until time.Duration
	for _, ln := range w.linkList {
		until = max(until, ln.free)
	}
	return until
}

type listener struct {
	loop   *Loop
	accept func() loop.Stream
}

func (w *World) newConn(l *Loop) *conn {
	w.conns++
	c := &conn{w: w, loop: l, id: w.conns, index: len(l.conns)}
	l.conns = append(l.conns, c)
	return c
}

// dial sends the first segment of a handshake. An address without a listener so far
// belongs to a host of its own, which refuses.
func (w *World) dial(l *Loop, addr string, timeout time.Duration, s loop.Stream) {
	c := w.newConn(l)
	c.stream, c.remote = s, addr
	if to, ok := w.redirects[addr]; ok {
		c.original, addr = netip.MustParseAddrPort(addr), to
	}
	c.addr = addr
	to := w.homes[addr]
	if to == nil {
		to = w.host(addr)
		w.homes[addr] = to
	}
	c.link = w.link(l.host, to)
	w.note(evkDial, l, c, 0)
	w.push(event{at: w.now + c.link.delay(w), kind: evSyn, c: c})
	if timeout > 0 {
		w.push(event{at: w.now + timeout, kind: evDialTimeout, c: c})
	}
}

// handshake processes the arrival of c's dial at its address.
func (w *World) handshake(c *conn) {
	to, ln := c.link.to, w.listeners[c.addr]
	back := w.link(to, c.link.from)
	switch {
	case c.state != stateDialing || to.down || w.black[c.addr] || w.chance(c.link.path.Lose):
		return
	case ln == nil || w.chance(c.link.path.Refuse):
		w.push(event{at: w.now + back.delay(w), kind: evRefuse, c: c})
		return
	}
	s := w.newConn(ln.loop)
	s.become(stateOpening)
	s.accept, s.link = ln.accept, back
	s.peer, c.peer, s.original = c, s, c.original
	c.link.from.ports++
	s.remote = c.link.from.ip.String() + ":" + strconv.Itoa(32768+c.link.from.ports%28232)
	s.out.last = w.now + back.delay(w)
	w.push(event{at: s.out.last, kind: evOpen, c: c})
	s.ready()
}

// established ends the handshake at the side that has dialled.
func (c *conn) established() {
	if c.state == stateDialing && c.peer != nil && c.err == nil {
		c.become(stateOpening)
		c.ready()
	}
}

// dialOutcome ends a dial with err, unless it has ended already.
func (c *conn) dialOutcome(err error) {
	if c.state == stateDialing && c.err == nil {
		c.err = err
		c.ready()
	}
}
