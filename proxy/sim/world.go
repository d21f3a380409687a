package sim

import (
	"math/rand/v2"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// Options are the constants of the model. New fills them in; change them in
// World.Options before the first connection.
type Options struct {
	// SendBuffer is how many bytes a connection's kernel takes before they are
	// sent; more is Buffered. Default 256 KiB.
	SendBuffer int
	// ReceiveBuffer is how many bytes may be on their way to, or unread at, one
	// end of a connection. Default 256 KiB.
	ReceiveBuffer int
	// ReadSize is the most that one OnData carries. Default 64 KiB.
	ReadSize int
	// TurnCost is the virtual time that a turn takes, so that a loop which
	// always has something to do does not stop the clock. At least 1 ns.
	// Default 1 µs.
	TurnCost time.Duration
	// Cut is the probability that a segment, and again a read, is cut short at
	// a random place; one cut in four leaves a single byte. Default 0.25.
	Cut float64
	// Sockets lets connections leave their loops, for tests whose goroutine uses
	// their Sockets itself. Default: Detach is refused.
	Sockets bool
}

// World is a set of loops and the network between them. It lives in one
// goroutine, that of the test.
type World struct {
	Options Options

	seed    uint64
	rand    *rand.Rand
	now     time.Duration
	events  queue
	scripts uint64 // scripts so far: they keep their order
	current *Loop  // whose callback is running

	loops     []*Loop // every loop that ever was, in order of creation
	hosts     map[string]*host
	links     map[[2]*host]*link
	linkList  []*link // in order of creation
	net       func(from, to string) Path
	listeners map[string]*listener
	homes     map[string]*host // where an address was last listened on
	black     map[string]bool
	redirects map[string]string // where dials to an address go instead
	held      []event           // stopped by a partition
	conns     uint32            // connections so far

	scratch []byte // what OnData gets
	trace   trace

	callbacks uint64 // so far
	onTurn    func(l *Loop, ready, callbacks int)
}

// New makes an empty world. All that is random in it follows from seed.
func New(seed uint64) *World {
	return &World{
		Options: Options{
			SendBuffer:    256 << 10,
			ReceiveBuffer: 256 << 10,
			ReadSize:      64 << 10,
			TurnCost:      time.Microsecond,
			Cut:           0.25,
		},
		seed:      seed,
		rand:      rand.New(rand.NewPCG(seed, 0x72656d6f7261)),
		hosts:     map[string]*host{},
		links:     map[[2]*host]*link{},
		net:       DefaultNet,
		listeners: map[string]*listener{},
		homes:     map[string]*host{},
		black:     map[string]bool{},
		redirects: map[string]string{},
	}
}

// Now is the virtual time since New.
func (w *World) Now() time.Duration { return w.now }

// Rand is the world's source of randomness. Drawing from it is part of the run:
// it changes what comes after, the same way each time.
func (w *World) Rand() *rand.Rand { return w.rand }

// At runs f at the absolute virtual time d, or now if that has passed. f runs
// outside of every loop; scripts due at the same time keep their order.
func (w *World) At(d time.Duration, f func()) {
	w.push(event{at: max(d, w.now), kind: evScript, f: f})
}

// Run lets d of virtual time pass.
func (w *World) Run(d time.Duration) {
	w.RunUntil(func() bool { return false }, d)
}

// RunUntil lets virtual time pass until cond holds, asked for after each turn
// and each script, and tells whether it did within limit.
func (w *World) RunUntil(cond func() bool, limit time.Duration) bool {
	if w.current != nil {
		panic("sim: Run inside a callback of loop " + w.current.name)
	}
	if cond() {
		return true
	}
	end := w.now + limit
	for len(w.events) > 0 && w.events[0].at <= end {
		e := w.events.pop()
		w.now = e.at
		w.handle(&e)
		if e.kind >= evScript && cond() {
			return true
		}
	}
	w.now = max(w.now, end)
	return false
}

// OnTurn has f called after each turn of a loop with what was ready for it
// (connections, due timers and posted functions), and how many callbacks it made
// of that.
func (w *World) OnTurn(f func(l *Loop, ready, callbacks int)) { w.onTurn = f }

// push queues e. What is due at the same time comes in this order: the network,
// in random order; scripts, in the order of At; turns, in random order.
func (w *World) push(e event) {
	switch e.kind {
	case evScript:
		w.scripts++
		e.tie = 1<<62 | w.scripts
	case evWake:
		e.tie = 1<<63 | w.rand.Uint64()>>1
	default:
		e.tie = w.rand.Uint64() >> 2
	}
	w.events.push(e)
}

func (w *World) handle(e *event) {
	switch e.kind {
	case evScript:
		w.note(evkScript, nil, nil, 0)
		e.f()
	case evWake:
		e.l.wake(e.at)
	case evPump:
		e.c.out.pumping = false
		e.c.transmit()
	case evDialTimeout:
		e.c.dialOutcome(errTimeout)
	case evLinger:
		e.c.lingered = true
		e.c.ready()
	default:
		if w.stopped(e) {
			w.held = append(w.held, *e)
			return
		}
		w.deliver(e)
	}
}

// chance is true with probability p.
func (w *World) chance(p float64) bool { return p > 0 && w.rand.Float64() < p }

// cut shortens n, at least 1, at a random place now and then.
func (w *World) cut(n int) int {
	if n <= 1 || !w.chance(w.Options.Cut) {
		return n
	}
	if w.rand.IntN(4) == 0 {
		return 1
	}
	return 1 + w.rand.IntN(n-1)
}

// Redirect has dials to the address from ("ip:port") arrive at to, whose listener
// learns of from by loop.Conn.OriginalDst, as after an iptables REDIRECT.
func (w *World) Redirect(from, to string) { w.redirects[from] = to }

// Listen accepts connections to addr ("ip:port") on l, each with the Stream
// that accept returns. accept runs on the loop, right before OnOpen. close
// stops listening; what was accepted lives on. Crash closes as well.
func (w *World) Listen(addr string, l *Loop, accept func() loop.Stream) (close func()) {
	if w.listeners[addr] != nil {
		panic("sim: " + addr + " is listened on already")
	}
	ln := &listener{loop: l, accept: accept}
	w.listeners[addr] = ln
	w.homes[addr] = l.host
	return func() {
		if w.listeners[addr] == ln {
			delete(w.listeners, addr)
		}
	}
}
