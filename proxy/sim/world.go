package sim

import (
	"math/rand/v2"
	"time"
)

// Options are the constants of the model. New fills them in; change them in
// World.Options before the first connection.
type Options struct {
	// SendBuffer is the number of unsent bytes that the kernel takes for a
	// connection; further ones are Buffered. Default 256 KiB.
	SendBuffer int
	// ReceiveBuffer is the number of bytes that may be on their way to one end of a
	// connection, or unread there. Default 256 KiB.
	ReceiveBuffer int
	// ReadSize is the maximum number of bytes of one OnData. Default 64 KiB.
	ReadSize int
	// TurnCost is the virtual time that a turn takes, at least 1 ns. Without it a
	// loop that always has work would stop the clock. Default 1 µs.
	TurnCost time.Duration
	// Cut is the probability that a segment is shortened to a random length, and
	// that a read is. One cut in four leaves a single byte. Default 0.25.
	Cut float64
	// Sockets allows Detach, for tests whose goroutine uses the Sockets itself.
	// Default: Detach returns errors.ErrUnsupported.
	Sockets bool
}

// World runs loops, and the network between them, by one virtual clock and one source of random numbers. Only the goroutine of the test uses it.
type World struct {
	Options Options

	seed    uint64
	rand    *rand.Rand
	now     time.Duration
	events  queue
	scripts uint64 // scripts so far: they keep their order
	current *Loop  // the loop whose callback is running

	loops   []*Loop // all loops, also crashed ones, in order of creation
	network network
	conns   uint32 // connections so far

	scratch []byte // the buffer for OnData
	trace   trace

	callbacks uint64 // so far
	onTurn    func(l *Loop, ready, callbacks int)
}

// New returns an empty world. All its random numbers follow from seed.
func New(seed uint64) *World {
	return &World{
		Options: Options{
			SendBuffer:    256 << 10,
			ReceiveBuffer: 256 << 10,
			ReadSize:      64 << 10,
			TurnCost:      time.Microsecond,
			Cut:           0.25,
		},
		seed:    seed,
		rand:    rand.New(rand.NewPCG(seed, 0x72656d6f7261)),
		network: newNetwork(),
	}
}

// Now returns the virtual time since New.
func (w *World) Now() time.Duration { return w.now }

// Rand returns the world's random numbers. Each use of them changes the rest of the run, in
// the same way each time.
func (w *World) Rand() *rand.Rand { return w.rand }

// At runs f at the absolute virtual time d, or now if d has passed. f runs outside of all
// loops. Scripts that are due at the same time keep their order.
func (w *World) At(d time.Duration, f func()) {
	w.push(event{at: max(d, w.now), kind: evScript, f: f})
}

// Run runs the world for d of virtual time.
func (w *World) Run(d time.Duration) {
	w.RunUntil(func() bool { return false }, d)
}

// RunUntil runs the world until cond holds, for limit of virtual time at most. It calls
// cond after each turn and each script. It reports whether cond held.
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

// OnTurn sets a function to be called after each turn of a loop. ready is the number of
// connections, due timers and posted functions of the turn; callbacks is the number of
// calls of the core.
func (w *World) OnTurn(f func(l *Loop, ready, callbacks int)) { w.onTurn = f }

// push queues e. Events due at the same time have this order: the network, at random;
// scripts, in the order of At; turns, at random.
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
		e.c.end.out.pumping = false
		e.c.end.transmit()
	case evDialTimeout:
		e.c.dialOutcome(errTimeout)
	case evLinger:
		e.c.lingered = true
		e.c.ready()
	default:
		if w.network.stopped(e) {
			w.network.held = append(w.network.held, *e)
			return
		}
		w.deliver(e)
	}
}

// chance is true with probability p.
func (w *World) chance(p float64) bool { return p > 0 && w.rand.Float64() < p }

// cut returns n, or with probability Options.Cut a random smaller length of at least 1.
func (w *World) cut(n int) int {
	if n <= 1 || !w.chance(w.Options.Cut) {
		return n
	}
	if w.rand.IntN(4) == 0 {
		return 1
	}
	return 1 + w.rand.IntN(n-1)
}
