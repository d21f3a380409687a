package adaptive

import (
	"math"
	"time"
)

const (
	// Least and Most bound a Limit. Two, because of one alone a single request
	// that hangs would stop an application.
	Least = 2
	Most  = 4096

	// initial is low, so that even one worker is measured without much of a queue
	// before it, and then doubles from window to window (slow start).
	initial = 4

	// headroom is how much longer than without a queue an answer may take: by
	// Little's law the limit then settles at that many times the capacity, and
	// one. Less would leave workers idle whenever service times vary.
	headroom = 1.35

	// One window moves the limit by a quarter at most: a freeze spoils one or
	// two windows, and what those take is back as soon.
	leastStep, mostStep = 0.75, 1.25

	// smoothing is for the latency without a queue outside of probes: without it,
	// that would sink to the luckiest window.
	smoothing = 1. / 32

	// probeEvery is how many windows in which the limit was reached pass between
	// two probes, probeSoon how many when the one before has found a queue, or a
	// latency that is surprisingly many times the one known.
	probeEvery, probeSoon = 100, 10
	surprising            = 1.25

	// queueing: half the limit gave less than this share of the latency. Without
	// a queue it is 1, all queue 0.5, and in balance 1/headroom.
	queueing = 0.6

	// A window lasts steadyLength, or some latencies where that is more, and until
	// leastAnswers have come. The one in which a probe measures is measureFactor
	// times that, so that a freeze is a small part of it.
	steadyLength  = 100 * time.Millisecond
	latencies     = 4
	measureFactor = 3
	leastAnswers  = 10
	longest       = 30 * time.Second
)

// Window is what was measured from one Update to the next.
type Window struct {
	Elapsed time.Duration
	Answers int           // requests that the application has finished with
	Latency time.Duration // their sum
	Reached bool          // some request found the limit reached
}

// phase is what a window is for.
//
//	starting ─▶ steady ─▶ draining ─▶ measuring ─▶ refilling ─▶ steady
type phase uint8

const (
	starting phase = iota // the limit doubles
	steady
	draining  // the limit was halved, but answers are still those of before
	measuring // of the latency at half the limit
	refilling // the limit is back, but answers are still those of the probe
)

// Limit follows the capacity of one application. It compares the mean latency
// of each window with that without a queue, and moves by the ratio. The latency
// without a queue is probed from time to time at half the limit, so that it never
// is older than probeEvery windows.
type Limit struct {
	phase phase
	limit float64

	// In nanoseconds.
	latency  float64 // mean of the latest window
	previous float64 // of the one before
	base     float64 // without a queue; 0: unknown

	probeIn     int     // windows
	beforeProbe float64 // latency
	afterProbe  float64 // limit
}

// New returns a Limit that knows nothing yet.
func New() *Limit { return &Limit{limit: initial, probeIn: probeSoon} }

// Value is how many requests the application may have now.
func (l *Limit) Value() int {
	if l.phase == draining || l.phase == measuring { // rounded down, so that a small pool has no queue
		return max(1, int(l.limit/2))
	}
	return int(math.Ceil(l.limit))
}

// Length is how long the present window should last.
func (l *Limit) Length() time.Duration {
	d := max(steadyLength, time.Duration(latencies*l.latency))
	switch l.phase {
	case starting: // a start from nothing holds up those who wait
		d = max(steadyLength, d/2)
	case measuring:
		d *= measureFactor
	}
	return min(d, longest)
}

// Update takes the measurements of the window that ends, and begins the next. It
// returns false, and the window is to go on, while that holds too little.
func (l *Limit) Update(w Window) bool {
	least := leastAnswers
	if l.phase == measuring {
		least *= measureFactor
	}
	if w.Answers < least {
		if w.Elapsed < longest {
			return false
		}
		l.phase = min(l.phase, steady) // next to no traffic
		return true
	}
	// At least a nanosecond: 0 of 0 would be the limit for good.
	l.previous, l.latency = l.latency, max(1, float64(w.Latency)/float64(w.Answers))
	switch l.phase {
	case starting:
		l.start(w.Reached)
	case steady:
		l.follow(w.Reached)
	case draining:
		l.phase = measuring
	case measuring:
		l.learn()
		l.phase = refilling
	case refilling:
		l.phase = steady
	}
	return true
}

// start doubles the limit for as long as that adds no latency.
func (l *Limit) start(reached bool) {
	if l.base == 0 {
		l.base = l.latency
	}
	switch {
	case l.latency > headroom*l.base:
		l.phase = steady
	case reached:
		l.set(2 * l.limit)
	}
}

// follow moves the limit towards headroom times the capacity, if it was reached:
// of one that is not in use, latency says nothing.
func (l *Limit) follow(reached bool) {
	if !reached || l.latency < l.base {
		l.base += smoothing * (l.latency - l.base)
	}
	if !reached {
		return
	}
	// A limit that keeps sinking is right if the capacity has sunk, and wrong if
	// the application has become slower: a probe tells which. One that has become
	// faster would get a queue meanwhile.
	//
	// Of two windows the less telling one counts: a probe follows on what stands
	// out, so that a single one would often be chance.
	l.probeIn--
	fast := headroom*max(l.latency, l.previous) < l.base
	if l.probeIn <= 0 || l.limit < l.afterProbe/2 || fast {
		l.beforeProbe = min(l.latency, l.previous)
		l.phase = draining
		return
	}
	target := l.limit*headroom*l.base/l.latency + 1
	l.set(min(max((l.limit+target)/2, leastStep*l.limit), mostStep*l.limit))
}

// learn ends a probe: the latency was beforeProbe at the whole limit, and is
// what it is now at half of it.
func (l *Limit) learn() {
	l.probeIn = probeEvery
	switch {
	case l.latency < queueing*l.beforeProbe:
		// Fewer requests at once were as many a second: half the limit is
		// nearer, and the queue may not have gone even so.
		l.base = min(l.base, l.latency)
		l.set(l.limit / 2)
		l.probeIn = probeSoon
	case l.latency > surprising*l.base:
		l.base = l.latency
		l.probeIn = probeSoon
	default:
		l.base = l.latency
	}
	l.afterProbe = l.limit
}

func (l *Limit) set(limit float64) { l.limit = min(max(limit, Least), Most) }
