package pipe

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/remora-proxy/remora/proxy/loop"
)

// Capacity is how many written bytes a pipe holds, before Write blocks until the loop takes some.
const Capacity = 64 << 10

// credit is how many bytes are read before the loop is told of them: it is woken for each change,
// and a short message needs no new window.
const credit = 8 << 10

// Budget counts the memory of pipes.
type Budget interface {
	Charge(n int) // bytes; negative for those that are released
}

// pipe is what both ends share.
type pipe struct {
	ctx  context.Context // the process's: when it ends, the loop may have stopped
	loop loop.Loop
	peer net.Addr
	in   queue        // from the loop
	out  queue        // to the loop
	read atomic.Int64 // bytes read since the last Taken
	held int          // bytes charged; of the loop

	readable  chan struct{} // has room for one; a Read that waits looks again
	writable  chan struct{} // the same for Write and Drain
	opened    chan struct{} // closed by Open, and by Close of the loop
	closed    chan struct{} // closed by Close of the loop
	abandoned chan struct{} // closed by Close and Reset of the Socket

	mu     sync.Mutex
	state  loop.PipeState
	isOpen bool
	ended  bool   // the loop has called End
	err    error  // why the loop has called Close; nil until then
	onLost func() // see Socket.OnLost

	posted atomic.Bool // tell is posted
	ready  func()
	tell   func() // is onPosted
}

// New returns the two ends of a pipe of loop l to the peer at remote. It is a shard.PipeMaker with
// who counts the memory and the context of the process: when that ends, calls of the Socket fail.
func New(ctx context.Context, holder Budget, l loop.Loop, remote string, ready func()) (loop.Pipe, *Socket) {
	p := &pipe{
		ctx: ctx, loop: l, peer: &net.UnixAddr{Name: loop.UnixPeer, Net: "unix"}, in: queue{holder: holder}, out: queue{holder: holder},
		readable: make(chan struct{}, 1), writable: make(chan struct{}, 1),
		opened: make(chan struct{}), closed: make(chan struct{}), abandoned: make(chan struct{}), ready: ready,
	}
	p.tell = p.onPosted
	if at, err := netip.ParseAddrPort(remote); err == nil {
		p.peer = net.TCPAddrFromAddrPort(at)
	}
	return loopEnd{p}, &Socket{pipe: p}
}

// notify has ready called on the loop, once for all changes until then.
func (p *pipe) notify() {
	if p.posted.CompareAndSwap(false, true) {
		p.loop.Post(p.tell)
	}
}

func (p *pipe) onPosted() {
	p.posted.Store(false)
	if !isClosed(p.closed) {
		p.ready()
	}
}

// become notes what was done with the Socket. It reports whether that is news: a state does not
// go back, and after Close no Reset can take back what the loop may send.
func (p *pipe) become(s loop.PipeState) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state >= s || p.state == loop.PipeClosed {
		return false
	}
	if p.state = s; s >= loop.PipeClosed {
		close(p.abandoned)
	}
	return true
}

// loopEnd is the loop's end.
type loopEnd struct{ *pipe }

// Open implements loop.Pipe.
func (e loopEnd) Open() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.isOpen && e.err == nil {
		e.isOpen = true
		close(e.opened)
	}
}

// Deliver implements loop.Pipe.
func (e loopEnd) Deliver(b []byte) {
	if !e.in.push(b) { // nobody reads it
		e.read.Add(int64(len(b)))
	}
	wake(e.readable)
}

// End implements loop.Pipe.
func (e loopEnd) End() {
	e.mu.Lock()
	e.ended = true
	e.mu.Unlock()
	wake(e.readable)
}

// Taken implements loop.Pipe.
func (e loopEnd) Taken() int { return int(e.read.Swap(0)) }

// Output implements loop.Pipe.
func (e loopEnd) Output() []byte { return e.out.peek() }

// Consume implements loop.Pipe.
func (e loopEnd) Consume(n int) {
	e.out.consume(n)
	wake(e.writable)
}

// Charge implements loop.Pipe.
func (e loopEnd) Charge(n int) {
	e.held += n
	e.out.holder.Charge(n)
}

// State implements loop.Pipe.
func (e loopEnd) State() loop.PipeState {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state
}

// Close implements loop.Pipe.
func (e loopEnd) Close(err error) {
	e.mu.Lock()
	if e.err != nil {
		e.mu.Unlock()
		return
	}
	e.err = cmp.Or[error](err, syscall.ECONNRESET)
	if !e.isOpen {
		close(e.opened)
	}
	onLost := e.onLost
	if e.state >= loop.PipeClosed || e.ended {
		onLost = nil
	}
	e.mu.Unlock()
	e.out.drop()
	e.Charge(-e.held)
	close(e.closed)
	if onLost != nil {
		go onLost()
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it will look again
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
