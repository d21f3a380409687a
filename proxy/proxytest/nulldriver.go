package proxytest

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// NullLoop is the smallest driver for the core: no sockets, a clock that the test moves,
// and connections that are two byte slices. It allocates nothing itself, so that
// testing.AllocsPerRun counts only the core and the codecs.
type NullLoop struct {
	Net     *nullNet
	now     time.Duration
	timers  loop.Timers
	flushes loop.Flushes
	posts   []func()
}

// nullNet connects loops. Pump delivers the bytes that one end writes to the other.
type nullNet struct {
	loops   []*NullLoop
	conns   []*NullConn // both ends of each connection
	dialled []*NullConn // OnOpen is due
	Accept  map[string]func() (*NullLoop, loop.Receiver)
	Step    time.Duration // by how much a round of Pump moves the clocks
}

// NullConn is one end of a connection. If Peer is nil, written bytes stay in Out for the
// test.
type NullConn struct {
	loop     *NullLoop
	receiver loop.Receiver
	Peer     *NullConn
	Out      []byte // written, not delivered
	spare    []byte // the other half of Out's double buffer
	Writes   int    // calls of Write and WriteParts
	Parts    int    // calls of WriteParts
	Held     int    // what Buffered returns
	Closed   bool
	Finished bool // closed by Finish
	Drained  bool // closed by Drain

	Left int         // of AwaitRoom
	Room *loop.Flush // of AwaitRoom

	Socket loop.Socket // of Detach; nil means that the connection can't leave its loop
}

// NewNullNet returns a network without loops.
func NewNullNet() *nullNet {
	return &nullNet{Accept: make(map[string]func() (*NullLoop, loop.Receiver))}
}

func (l *NullLoop) Now() time.Duration                   { return l.now }
func (l *NullLoop) After(d time.Duration, t *loop.Timer) { l.timers.Arm(t, l.now+d) }
func (l *NullLoop) Stop(t *loop.Timer)                   { l.timers.Disarm(t) }
func (l *NullLoop) Defer(f *loop.Flush)                  { l.flushes.Add(f) }
func (l *NullLoop) Post(f func())                        { l.posts = append(l.posts, f) }
func (l *NullLoop) Dial(addr string, _ time.Duration, r loop.Receiver) {
	bl, br := l.Net.Accept[addr]()
	a, b := l.Net.Connect(l, r, bl, br)
	l.Net.dialled = append(l.Net.dialled, a, b)
}

func (c *NullConn) Write(b []byte) {
	if !c.Closed {
		c.Out = append(c.Out, b...)
		c.Writes++
	}
}
func (c *NullConn) WriteParts(parts [][]byte) {
	if !c.Closed {
		for _, b := range parts {
			c.Out = append(c.Out, b...)
		}
		c.Writes++
		c.Parts++
	}
}
func (c *NullConn) Buffered() int      { return c.Held }
func (c *NullConn) Close()             { c.Closed = true }
func (c *NullConn) Drain()             { c.Closed, c.Drained = true, true }
func (c *NullConn) Finish()            { c.Closed, c.Finished = true, true }
func (c *NullConn) HasInput() bool     { return false }
func (c *NullConn) RemoteAddr() string { return "192.0.2.1:1" }

func (c *NullConn) AwaitRoom(left int, f *loop.Flush) { c.Left, c.Room = left, f }

func (c *NullConn) OriginalDst() netip.AddrPort { return netip.AddrPort{} }

func (c *NullConn) Protocol() string { return "" }

func (c *NullConn) SetReceiver(r loop.Receiver) { c.receiver = r }

func (c *NullConn) Detach() (loop.Socket, error) {
	switch {
	case c.Socket == nil:
		return nil, errors.ErrUnsupported
	case c.Held > 0:
		return nil, loop.ErrDetachBuffered
	}
	return c.Socket, nil
}

// Deliver calls OnData of c's receiver.
func (c *NullConn) Deliver(b []byte) {
	if !c.Closed {
		c.receiver.OnData(b)
	}
}

// Lose closes c, whose peer has gone.
func (c *NullConn) Lose() { c.LoseFor(nil) }

// LoseFor is Lose with the error that the receiver gets.
func (c *NullConn) LoseFor(err error) {
	c.Closed = true
	c.receiver.OnClose(err)
}

// EndTurn ends a turn. It reports whether there was anything to do.
func (l *NullLoop) EndTurn() (moved bool) {
	posts := l.posts
	l.posts = nil
	for _, f := range posts {
		f()
	}
	limit := l.timers.LastSeq()
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

// RunTo moves the clock of this loop alone, with a turn for each time at which a timer is due.
func (l *NullLoop) RunTo(at time.Duration) {
	for l.Due(at) {
		l.NextTurn()
	}
	l.now = at
}

// Due reports whether a timer is due at that time or before.
func (l *NullLoop) Due(at time.Duration) bool {
	due, ok := l.timers.Next()
	return ok && due <= at
}

// NextTurn moves the clock of this loop alone to the time at which the next timer is due, and ends a turn.
func (l *NullLoop) NextTurn() {
	if due, ok := l.timers.Next(); ok {
		l.now = max(l.now, due)
	}
	l.EndTurn()
}

// Timers returns the number of timers that run.
func (l *NullLoop) Timers() int { return l.timers.Len() }

// ForgetClosed removes the connections that an end has closed, as a driver does.
func (n *nullNet) ForgetClosed() {
	var gone []*NullConn
	n.conns = slices.DeleteFunc(n.conns, func(c *NullConn) bool {
		ended := c.Closed || c.Peer != nil && c.Peer.Closed
		if ended {
			gone = append(gone, c)
		}
		return ended
	})
	for _, c := range gone {
		c.Peer = nil
	}
	n.dialled = nil
}

// Loop adds a loop.
func (n *nullNet) Loop() *NullLoop {
	l := &NullLoop{Net: n, now: 1}
	n.loops = append(n.loops, l)
	return l
}

// Connect returns both ends of a connection. One end may have no receiver.
func (n *nullNet) Connect(al *NullLoop, ar loop.Receiver, bl *NullLoop, br loop.Receiver) (a, b *NullConn) {
	a, b = &NullConn{loop: al, receiver: ar}, &NullConn{loop: bl, receiver: br}
	n.conns = append(n.conns, a, b)
	if ar != nil {
		b.Peer = a
	}
	if br != nil {
		a.Peer = b
	}
	return a, b
}

// Pump runs turns on all loops until there is nothing to do.
func (n *nullNet) Pump() {
	for n.round() {
		n.Advance(n.Step)
	}
}

// Advance moves all clocks by d.
func (n *nullNet) Advance(d time.Duration) {
	for _, l := range n.loops {
		l.now += d
	}
}

// round runs one turn of every loop. It reports whether there was anything to do.
func (n *nullNet) round() (moved bool) {
	for len(n.dialled) > 0 {
		c := n.dialled[0]
		n.dialled = append(n.dialled[:0], n.dialled[1:]...)
		c.receiver.OnOpen(c)
		moved = true
	}
	for _, c := range n.conns {
		if c.Peer == nil || len(c.Out) == 0 {
			continue
		}
		b := c.Out
		c.Out, c.spare = c.spare[:0], b
		c.Peer.Deliver(b)
		moved = true
	}
	for _, l := range n.loops {
		moved = l.EndTurn() || moved
	}
	return moved
}
