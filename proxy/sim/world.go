package sim

import (
	"fmt"
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
	// OnDetach is called when a connection may leave its loop, and returns the error with which Detach fails instead.
	// nil means that none does.
	OnDetach func() error
}

// World builds a simulation and runs it: it makes the loops, and handles the events as they
// come due. Only the goroutine of the test uses it.
type World struct {
	Options Options
	Net     Network // between the hosts of the loops
	Faults  Faults  // what a test may break

	seed  uint64
	rand  random
	clock clock
	trace trace

	loops   []*Loop // all loops, also crashed ones, in order of creation
	current *Loop   // the loop whose callback is running
	input   inputBuffer

	callbacks uint64 // so far
	onTurn    func(l *Loop, ready, callbacks int)
}

// New returns an empty world. All its random numbers follow from seed.
func New(seed uint64) *World {
	w := &World{
		Options: Options{
			SendBuffer:    256 << 10,
			ReceiveBuffer: 256 << 10,
			ReadSize:      64 << 10,
			TurnCost:      time.Microsecond,
			Cut:           0.25,
		},
		seed: seed,
		rand: random{rand.New(rand.NewPCG(seed, 0x72656d6f7261))},
	}
	w.Net = newNetwork(w)
	w.Faults = Faults{w}
	w.clock.rand = w.rand
	w.trace.clock = &w.clock
	return w
}

// Now returns the virtual time since New.
func (w *World) Now() time.Duration { return w.clock.now }

// Rand returns the world's random numbers. Each use of them changes the rest of the run, in
// the same way each time.
func (w *World) Rand() *rand.Rand { return w.rand.Rand }

// At runs f at the absolute virtual time d, or now if d has passed. f runs outside of all
// loops. Scripts that are due at the same time keep their order.
func (w *World) At(d time.Duration, f func()) {
	w.clock.push(event{at: max(d, w.clock.now), kind: evScript, f: f})
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
	end := w.clock.now + limit
	for {
		e, ok := w.clock.next(end)
		if !ok {
			return false
		}
		w.handle(&e)
		if e.kind >= evScript && cond() {
			return true
		}
	}
}

// OnTurn sets a function to be called after each turn of a loop. ready is the number of
// connections, due timers and posted functions of the turn; callbacks is the number of
// calls of the core.
func (w *World) OnTurn(f func(l *Loop, ready, callbacks int)) { w.onTurn = f }

func (w *World) handle(e *event) {
	switch e.kind {
	case evScript:
		w.trace.note(evkScript, nil, nil, 0)
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
		w.Net.arrive(e)
	}
}

// Leftovers returns a line for each connection, armed timer and queued work of a world that
// should be idle. Loops that have crashed don't count.
func (w *World) Leftovers() []string {
	var left []string
	for _, l := range w.loops {
		if l.dead {
			continue
		}
		for _, c := range l.conns {
			left = append(left, fmt.Sprintf("%s: connection %d to %s", l.name, c.id, c.remote))
		}
		if n := l.timers.Len(); n > 0 {
			left = append(left, fmt.Sprintf("%s: %d timers armed", l.name, n))
		}
		if n := len(l.posts); n > 0 || !l.flushes.Empty() {
			left = append(left, fmt.Sprintf("%s: work queued for the next turn", l.name))
		}
	}
	return left
}
