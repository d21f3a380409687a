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

// DefaultPaths returns the paths of a new World: 10 to 30 µs within a host, 100 to
// 200 µs between hosts, no limits, no faults.
func DefaultPaths(from, to string) Path {
	if from == to {
		return Path{Latency: 10 * time.Microsecond, Jitter: 20 * time.Microsecond}
	}
	return Path{Latency: 100 * time.Microsecond, Jitter: 100 * time.Microsecond}
}

// Network is what lies between the loops of a World: their hosts, the links between hosts,
// and who listens where. It opens connections and delivers their segments.
type Network struct {
	w         *World
	conns     uint32 // connections so far
	paths     func(from, to string) Path
	hosts     map[string]*host
	links     map[[2]*host]*link
	linkList  []*link // in order of creation
	listeners map[string]*listener
	homes     map[string]*host // the host that last listened on an address
	black     map[string]bool
	redirects map[string]string // other addresses for dials to an address
	held      []event           // stopped by a partition
}

func newNetwork(w *World) Network {
	return Network{
		w:         w,
		paths:     DefaultPaths,
		hosts:     map[string]*host{},
		links:     map[[2]*host]*link{},
		listeners: map[string]*listener{},
		homes:     map[string]*host{},
		black:     map[string]bool{},
		redirects: map[string]string{},
	}
}

// SetPaths sets the path between each two hosts. paths is called once for each direction.
// Segments on their way are not affected.
func (n *Network) SetPaths(paths func(from, to string) Path) {
	n.paths = paths
	for _, ln := range n.linkList {
		ln.path = paths(ln.from.name, ln.to.name)
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

func (n *Network) host(name string) *host {
	h := n.hosts[name]
	if h == nil {
		i := len(n.hosts) + 1
		h = &host{name: name, ip: netip.AddrFrom4([4]byte{10, 99, byte(i >> 8), byte(i)})}
		n.hosts[name] = h
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

func (n *Network) link(from, to *host) *link {
	ln := n.links[[2]*host{from, to}]
	if ln == nil {
		ln = &link{from: from, to: to, path: n.paths(from.name, to.name)}
		n.links[[2]*host{from, to}] = ln
		n.linkList = append(n.linkList, ln)
	}
	return ln
}

// delay returns a random time for one segment.
func (ln *link) delay(r random) time.Duration {
	d := ln.path.Latency
	if ln.path.Jitter > 0 {
		d += time.Duration(r.Int64N(int64(ln.path.Jitter)))
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
// Later calls of SetPaths don't affect it.
func (n *Network) Busy() time.Duration {
	var until time.Duration
	for _, ln := range n.linkList {
		until = max(until, ln.free)
	}
	return until
}

type listener struct {
	loop   *Loop
	accept func() loop.Receiver
}

func (n *Network) newConn(l *Loop) *conn {
	n.conns++
	c := &conn{w: n.w, loop: l, id: n.conns, index: len(l.conns)}
	c.end.conn = c
	l.conns = append(l.conns, c)
	return c
}

// dial sends the first segment of a handshake. An address without a listener so far
// belongs to a host of its own, which refuses.
func (n *Network) dial(l *Loop, addr string, timeout time.Duration, r loop.Receiver) {
	c := n.newConn(l)
	c.receiver, c.remote = r, addr
	if to, ok := n.redirects[addr]; ok {
		c.original, addr = netip.MustParseAddrPort(addr), to
	}
	c.addr = addr
	to := n.homes[addr]
	if to == nil {
		to = n.host(addr)
		n.homes[addr] = to
	}
	c.end.link = n.link(l.host, to)
	n.w.trace.note(evkDial, l, c, 0)
	n.w.clock.push(event{at: n.w.clock.now + c.end.link.delay(n.w.rand), kind: evSyn, c: c})
	if timeout > 0 {
		n.w.clock.push(event{at: n.w.clock.now + timeout, kind: evDialTimeout, c: c})
	}
}

// handshake processes the arrival of c's dial at its address.
func (n *Network) handshake(c *conn) {
	to, ln := c.end.link.to, n.listeners[c.addr]
	back := n.link(to, c.end.link.from)
	switch {
	case c.state != stateDialing || to.down || n.black[c.addr] || n.w.rand.chance(c.end.link.path.Lose):
		return
	case ln == nil || n.w.rand.chance(c.end.link.path.Refuse):
		n.w.clock.push(event{at: n.w.clock.now + back.delay(n.w.rand), kind: evRefuse, c: c})
		return
	}
	s := n.newConn(ln.loop)
	s.become(stateOpening)
	s.accept, s.end.link = ln.accept, back
	s.end.peer, c.end.peer, s.original = &c.end, &s.end, c.original
	c.end.link.from.ports++
	s.remote = c.end.link.from.ip.String() + ":" + strconv.Itoa(32768+c.end.link.from.ports%28232)
	s.end.out.last = n.w.clock.now + back.delay(n.w.rand)
	n.w.clock.push(event{at: s.end.out.last, kind: evOpen, c: c})
	s.ready()
}

// arrive delivers a segment, unless a partition stops it.
func (n *Network) arrive(e *event) {
	if n.route(e).cut {
		n.held = append(n.held, *e)
		return
	}
	n.deliver(e)
}

// release sends the segments again that a partition has held. TCP tries ever more rarely, so each connection resumes at a time of its
// own; see Partition.
func (n *Network) release() {
	held := n.held
	n.held = nil
	resumes := make(map[*conn]time.Duration) // by the sender
	for _, e := range held {
		if n.route(&e).cut {
			n.held = append(n.held, e)
			continue
		}
		switch e.kind {
		case evArrive, evFin:
			at, known := resumes[e.c]
			if !known {
				at = n.w.clock.now + time.Duration(n.w.rand.Int64N(int64(n.w.clock.now-e.at)+1))
				resumes[e.c] = at
			}
			out := &e.c.end.out
			out.last = max(out.last, at+n.route(&e).delay(n.w.rand)) // what is sent from now on arrives later
			e.at = out.last
		default:
			e.at = n.w.clock.now + n.route(&e).delay(n.w.rand)
		}
		n.w.clock.push(e)
	}
}

// route returns the link of e.
func (n *Network) route(e *event) *link {
	switch e.kind {
	case evReset, evOpen, evRefuse: // these go to c
		return n.link(e.c.end.link.to, e.c.end.link.from)
	default:
		return e.c.end.link
	}
}

// established ends the handshake at the side that has dialled.
func (c *conn) established() {
	if c.state == stateDialing && c.end.peer != nil && c.err == nil {
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

// Redirect makes dials to the address from ("ip:port") arrive at to. The listener there gets
// from by loop.Conn.OriginalDst, as after an iptables REDIRECT.
func (n *Network) Redirect(from, to string) { n.redirects[from] = to }

// Listen accepts connections to addr ("ip:port") on l, each with the Receiver
// that accept returns. accept runs on the loop, right before OnOpen. close
// stops listening; accepted connections stay open. Crash stops listening, too.
func (n *Network) Listen(addr string, l *Loop, accept func() loop.Receiver) (close func()) {
	if n.listeners[addr] != nil {
		panic("sim: " + addr + " has a listener already")
	}
	ln := &listener{loop: l, accept: accept}
	n.listeners[addr] = ln
	n.homes[addr] = l.host
	return func() {
		if n.listeners[addr] == ln {
			delete(n.listeners, addr)
		}
	}
}

// stopListening closes the listeners of l.
func (n *Network) stopListening(l *Loop) {
	for addr, ln := range n.listeners {
		if ln.loop == l {
			delete(n.listeners, addr)
		}
	}
}
