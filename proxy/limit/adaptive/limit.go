package adaptive

import (
	"math"
	"time"
)

const (
	// Least and Most bound a Limit. With 1, one request that hangs would stop the application.
	Least = 2
	Most  = 4096

	// initial is the first limit. It is low, so that a single worker is measured
	// almost without a queue. The limit then doubles in each window (slow start).
	initial = 4

	// headroom is the accepted ratio of the latency to the latency without a queue.
	// By Little's law the limit settles at headroom times the capacity, plus one.
	// With less, workers would be idle whenever service times vary.
	headroom = 1.35

	// minStep and maxStep bound the change of the limit in one window. A freeze
	// lowers it in one or two windows, and as many raise it again.
	minStep, maxStep = 0.75, 1.25

	// smoothing is the weight of one window, outside of probes, in the estimate of
	// the latency without a queue. Without it that would sink to the lowest window.
	smoothing = 1. / 32

	// probeEvery is the number of windows at the limit between two probes. It is probeSoon
	// after a probe that found a queue, or a latency above slowerFactor times the estimate.
	probeEvery, probeSoon = 100, 10
	slowerFactor          = 1.25

	// queueRatio is the ratio of the latency at half the limit to that at the whole
	// limit below which a probe has found a queue. The ratio is 1 without a queue,
	// 0.5 if all latency is queueing, and 1/headroom where the limit settles.
	queueRatio = 0.6

	// A window lasts minLength or latencyFactor mean latencies, whichever is
	// longer, and until it has minResponses. The window in which a probe measures
	// is measureFactor times as long, so that a freeze is a small part of it.
	minLength     = 100 * time.Millisecond
	latencyFactor = 4
	measureFactor = 3
	minResponses  = 10
	maxLength     = 30 * time.Second
)

// Window contains the measurements between two calls of Update.
type Window struct {
	Elapsed  time.Duration
	Answers  int           // requests that the application has finished
	Latency  time.Duration // sum of their latencies
	Late     int           // requests that reached their deadline
	LateTime time.Duration // sum of the times that the application had for them
	Reached  bool          // reports whether a request found the limit reached
}

// phase is the purpose of a window.
//
//	starting ─▶ steady ─▶ draining ─▶ measuring ─▶ refilling ─▶ steady
type phase uint8

const (
	starting  phase = iota // the limit doubles
	steady                 // the limit follows the latency
	draining               // the limit was halved, but responses are to requests from before
	measuring              // the latency at half the limit is measured
	refilling              // the limit is whole again, but responses are to requests of the probe
)

// Limit follows the capacity of one application: it compares the mean latency of each window
// with that without a queue, and moves by the ratio. Probes at half the limit measure the
// latter, at least each probeEvery windows at the limit.
type Limit struct {
	phase phase
	limit float64

	// Latencies, in nanoseconds.
	latency  float64 // mean of the last window
	previous float64 // mean of the window before
	base     float64 // estimate without a queue; 0 means unknown

	probeIn     int     // windows at the limit until the next probe
	beforeProbe float64 // latency before the last probe
	afterProbe  float64 // limit after the last probe
}

// New returns a Limit without measurements.
func New() *Limit { return &Limit{limit: initial, probeIn: probeSoon} }

// Value returns how many requests the application may have now.
func (l *Limit) Value() int {
	if l.phase == draining || l.phase == measuring { // rounded down, so that a small pool has no queue
		return max(1, int(l.limit/2))
	}
	return int(math.Ceil(l.limit))
}

// Length returns how long the current window should last.
func (l *Limit) Length() time.Duration {
	d := max(minLength, time.Duration(latencyFactor*l.latency))
	switch l.phase {
	case starting: // shorter: while the limit is far too low, requests are queued
		d = max(minLength, d/2)
	case measuring:
		d *= measureFactor
	}
	return min(d, maxLength)
}

// Update takes the measurements of a window and begins the next one. It returns false
// if the window has too few responses: the caller must then continue it.
func (l *Limit) Update(w Window) bool {
	least := minResponses
	if l.phase == measuring {
		least *= measureFactor
	}
	all := w.Answers + w.Late
	if all < least {
		if w.Elapsed < maxLength {
			return false
		}
		l.phase = min(l.phase, steady) // hardly any traffic: give up a probe
		return true
	}
	l.previous, l.latency = l.latency, mean(w.Latency+w.LateTime, all)
	if w.Late > w.Answers {
		l.adjustLate(&w)
		return true
	}
	switch l.phase {
	case starting:
		l.start(w.Reached)
	case steady:
		l.adjust(w.Reached)
	case draining:
		l.phase = measuring
	case measuring:
		l.endProbe()
		l.phase = refilling
	case refilling:
		l.phase = steady
	}
	return true
}

// start doubles the limit as long as that adds no latency.
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

// adjust moves the limit towards headroom times the capacity. It leaves a limit that
// was not reached: its latency says nothing about it.
func (l *Limit) adjust(reached bool) {
	if !reached || l.latency < l.base {
		l.base += smoothing * (l.latency - l.base)
	}
	if !reached {
		return
	}
	// If the limit keeps falling, either the capacity has fallen, and the limit is
	// right, or each request takes longer, and the limit is wrong. A probe
	// distinguishes the two. If requests have become faster, the estimate without a
	// queue is too high and the limit lets a queue grow, so a probe follows too.
	//
	// One unusual window may be chance: both conditions use the less unusual of two.
	l.probeIn--
	fast := headroom*max(l.latency, l.previous) < l.base
	if l.probeIn <= 0 || l.limit < l.afterProbe/2 || fast {
		l.beforeProbe = min(l.latency, l.previous)
		l.phase = draining
		return
	}
	l.set(l.next())
}

// next returns the limit that follows from the latency of the last window.
func (l *Limit) next() float64 {
	target := l.limit*headroom*l.base/l.latency + 1
	return min(max((l.limit+target)/2, minStep*l.limit), maxStep*l.limit)
}

// adjustLate follows a window in which most requests reached their deadline. How long the application takes now is not known.
// If the application had as much time for these requests as it usually takes, it takes longer now: the limit may fall, and does
// not rise. If the application had less time, the requests waited too long for a slot: the limit may rise, too. A probe would
// compare deadlines, so the probe is given up.
func (l *Limit) adjustLate(w *Window) {
	if l.base == 0 && w.Answers > 0 {
		l.base = mean(w.Latency, w.Answers)
	}
	if l.base == 0 {
		return
	}
	l.phase = steady
	if !w.Reached {
		return
	}
	next := l.next()
	if mean(w.LateTime, w.Late) >= l.base {
		next = min(next, l.limit)
	}
	l.set(next)
}

// endProbe evaluates a probe: the latency was beforeProbe, and is l.latency at half the limit.
func (l *Limit) endProbe() {
	l.probeIn = probeEvery
	switch {
	case l.latency < queueRatio*l.beforeProbe:
		// There was a queue: half the limit served almost as many requests per
		// second. So half the limit is better, and there may still be a queue.
		l.base = min(l.base, l.latency)
		l.set(l.limit / 2)
		l.probeIn = probeSoon
	case l.latency > slowerFactor*l.base:
		l.base = l.latency
		l.probeIn = probeSoon
	default:
		l.base = l.latency
	}
	l.afterProbe = l.limit
}

func (l *Limit) set(limit float64) { l.limit = min(max(limit, Least), Most) }

// mean returns the mean of n times, in nanoseconds. It is not 0: the ratio of two latencies could then be 0/0, and the limit
// NaN for ever.
func mean(sum time.Duration, n int) float64 { return max(1, float64(sum)/float64(n)) }
