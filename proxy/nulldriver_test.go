package proxy_test

import (
	"errors"
	"net/netip"
	"time"

	"github.com/remora-proxy/remora/proxy"
)

// nullLoop is the least driver that the core runs on: no sockets, a clock that
// the test moves, and connections that are two byte slices. It allocates nothing
// itself, so that what testing.AllocsPerRun counts is the core's and the codecs'.
type nullLoop struct {
	net     *nullNet
	now     time.Duration
	timers  proxy.Timers
	flushes proxy.Flushes
	posts   []func()
}

// nullNet connects loops: what one end writes, pump hands to the other.
type nullNet struct {
	loops  []*nullLoop
	conns  []*nullConn // both ends of each connection
	dialed []*nullConn // not told OnOpen yet
	accept map[string]func() (*nullLoop, proxy.Stream)
	step   time.Duration // how far a round moves the clocks
}

// nullConn is one end of a connection. What is written to an end whose peer is
// nil stays in out, for the test to look at.
type nullConn struct {
	loop   *nullLoop
	stream proxy.Stream
	peer   *nullConn
	out    []byte // written, not yet handed to peer
	spare  []byte // the other half of out's double buffer
	closed bool
}

func newNullNet() *nullNet {
	return &nullNet{accept: make(map[string]func() (*nullLoop, proxy.Stream))}
}

func (n *nullNet) loop() *nullLoop {
	l := &nullLoop{net: n, now: 1}
	n.loops = append(n.loops, l)
	return l
}

// connect makes both ends of a connection, of which one may have no stream.
func (n *nullNet) connect(al *nullLoop, as proxy.Stream, bl *nullLoop, bs proxy.Stream) (a, b *nullConn) {
	a, b = &nullConn{loop: al, stream: as}, &nullConn{loop: bl, stream: bs}
	n.conns = append(n.conns, a, b)
	if as != nil {
		b.peer = a
	}
	if bs != nil {
		a.peer = b
	}
	return a, b
}

func (l *nullLoop) Now() time.Duration                    { return l.now }
func (l *nullLoop) After(d time.Duration, t *proxy.Timer) { l.timers.Arm(t, l.now+d) }
func (l *nullLoop) Stop(t *proxy.Timer)                   { l.timers.Disarm(t) }
func (l *nullLoop) Defer(f *proxy.Flush)                  { l.flushes.Add(f) }
func (l *nullLoop) Post(f func())                         { l.posts = append(l.posts, f) }
func (l *nullLoop) Dial(addr string, _ time.Duration, s proxy.Stream) {
	bl, bs := l.net.accept[addr]()
	a, b := l.net.connect(l, s, bl, bs)
	l.net.dialed = append(l.net.dialed, a, b)
}

func (c *nullConn) Write(b []byte) {
	if !c.closed {
		c.out = append(c.out, b...)
	}
}
func (c *nullConn) Buffered() int      { return 0 }
func (c *nullConn) Close()             { c.closed = true }
func (c *nullConn) Drain()             { c.closed = true }
func (c *nullConn) RemoteAddr() string { return "192.0.2.1:1" }

func (c *nullConn) OriginalDst() netip.AddrPort { return netip.AddrPort{} }

func (c *nullConn) Detach() (proxy.Socket, error) { return nil, errors.ErrUnsupported }

// deliver hands what the peer wrote to c's stream.
func (c *nullConn) deliver(b []byte) {
	if !c.closed {
		c.stream.OnData(b)
	}
}

// pump runs turns on all loops until nothing moves any more.
func (n *nullNet) pump() {
	for n.round() {
		n.skip(n.step)
	}
}

// skip moves all clocks.
func (n *nullNet) skip(d time.Duration) {
	for _, l := range n.loops {
		l.now += d
	}
}

// round is one turn of every loop; it tells whether there was anything to do.
func (n *nullNet) round() (moved bool) {
	for len(n.dialed) > 0 {
		c := n.dialed[0]
		n.dialed = append(n.dialed[:0], n.dialed[1:]...)
		c.stream.OnOpen(c)
		moved = true
	}
	for _, c := range n.conns {
		if c.peer == nil || len(c.out) == 0 {
			continue
		}
		b := c.out
		c.out, c.spare = c.spare[:0], b
		c.peer.deliver(b)
		moved = true
	}
	for _, l := range n.loops {
		moved = l.endTurn() || moved
	}
	return moved
}

func (l *nullLoop) endTurn() (moved bool) {
	posts := l.posts
	l.posts = nil
	for _, f := range posts {
		f()
	}
	limit := l.timers.Mark()
	for t := l.timers.Pop(l.now, limit); t != nil; t = l.timers.Pop(l.now, limit) {
		t.Fire()
		moved = true
	}
	flushes := l.flushes.Take()
	for _, f := range flushes {
		f.Do()
	}
	return moved || len(posts) > 0 || len(flushes) > 0
}
