package lb

import (
	"math"
	"math/bits"
	"time"
)

// Spare capacity. A hedge to a replica whose workers are all busy waits there, and delays the
// requests behind it. The number of a replica's workers is rarely configured, but it shows in the
// latencies: a request that finds a free worker takes as long as ever, and a request that finds none
// waits. So a set keeps the latency by the load that requests found, over all its endpoints. It keeps
// the lower quartile of latency: a queue delays all requests, while other causes, such as a freeze,
// delay only some.

const (
	levels = 24 // of load; the last has all loads of 1536 and more

	// quartileStep is how far a latency moves the quartile of its level, as a power of 2. The first
	// latencies move it further. With this step the estimate for exponential latencies is within 10%
	// of the quartile. The error matters, because the least estimate of all levels is unloaded.
	quartileStep = 1.0 / 128

	// levelKnown is the number of latencies from which on the quartile of a level counts.
	// levelMost is how many are remembered.
	levelKnown = 64
	levelMost  = 512

	// levelHalf is the time after which the samples of a level count half: what was learned
	// long ago, perhaps of another release, is forgotten. If they are rare they must have been
	// enough for some levels, levelHalfSamples, unless it takes longer than levelHalfMost.
	levelHalf        = 5 * time.Second
	levelHalfSamples = 512
	levelHalfMost    = time.Minute

	// While nothing is known of a load, an endpoint has room up to its usual load, and at least up to
	// guessFloor requests: a service may be busy when it is first seen. For a stuck request the bound
	// is twice as high: in a freeze the other endpoints have loads that are rare, and so unknown.
	guessFloor = 2

	// spareSlower is how much longer than unloaded the quartile at a load may be, as a power
	// of 2: 23%. With one worker, a request that finds it busy takes twice as long, and with two
	// a third longer.
	spareSlower = 0.3

	// stuckSlower is spareSlower for the hedge of a stuck request: the quartile may be twice as long,
	// which is short beside a freeze.
	stuckSlower = 1

	// unloadedDrift is how much the unloaded latency may grow each time the samples are halved, as a
	// power of 2, if no load is as quick any more. So a service of 100 requests a second that becomes
	// twice as slow has the new unloaded latency within a minute. The drift is slow, because in an
	// overload all known loads are slow, too.
	unloadedDrift = 0.1
)

// Level is a range of loads: each below 8, then two in each doubling.
type Level uint8

func levelOf(load float64) Level {
	if load < 8 {
		return Level(max(0, load))
	}
	n := uint(min(load, 1<<20))
	doubling := bits.Len(n) - 4 // 0 for 8 to 15
	return Level(min(8+2*doubling+int(n>>(doubling+2)&1), levels-1))
}

// loads is the latency at each level of load.
type loads struct {
	known    [levels]quartile
	unloaded float64 // the least quartile of late, and unloadedDrift; 0 means unknown
	added    int     // since the samples last were halved, at halved
	halved   time.Duration
}

// quartile follows the lower quartile of latencies.
type quartile struct {
	log     float64 // binary logarithm of nanoseconds
	samples float64 // up to levelMost
}

// add learns the latency of a request that found its endpoint at level l. log is the binary logarithm of
// the latency in nanoseconds.
func (s *loads) add(now time.Duration, log float64, l Level) {
	s.fade(now)
	s.added++
	s.known[l].add(log)
}

// add moves the quartile down by three quarters of a step for a latency below it, and up by one quarter
// for a latency above it. So it settles where a quarter of the latencies is below.
func (q *quartile) add(log float64) {
	if q.samples == 0 {
		q.log = log
	}
	q.samples = min(q.samples+1, levelMost)
	step := max(quartileStep, 4/q.samples)
	q.log += min(max(log-q.log, -0.75*step), 0.25*step)
}

// fade halves the samples when that is due.
func (s *loads) fade(now time.Duration) {
	age := now - s.halved
	if age < levelHalf || age < levelHalfMost && s.added < levelHalfSamples {
		return
	}
	if least := s.least(); least > 0 {
		s.unloaded = least + unloadedDrift
	}
	if age >= 2*levelHalfMost { // after a pause nothing counts
		*s = loads{}
	}
	s.halved, s.added = now, 0
	for i := range s.known {
		s.known[i].samples /= 2
	}
}

// least returns the least quartile, of the known levels and of late; 0 means that none is known.
func (s *loads) least() float64 {
	least := s.unloaded
	for i := range s.known {
		if m := &s.known[i]; m.samples >= levelKnown && (least == 0 || m.log < least) {
			least = m.log
		}
	}
	return least
}

// slower returns how much longer than unloaded a request takes if it finds level l, as a power of 2. A
// level of which nothing is known counts as the next higher known level. Without a higher one, known is
// false, and slower is that of the highest known level, or 0.
func (s *loads) slower(now time.Duration, l Level) (slower float64, known bool) {
	s.fade(now)
	least := s.least()
	for i := range s.known {
		if s.known[i].samples < levelKnown {
			continue
		}
		if slower = s.known[i].log - least; Level(i) >= l {
			return slower, true
		}
	}
	return slower, false
}

// log2 is the binary logarithm of d, exact for powers of 2 and linear in between.
func log2(d time.Duration) float64 {
	return float64(math.Float64bits(float64(d)))/(1<<52) - 1023
}

// exp2 is the inverse of log2.
func exp2(x float64) float64 { return math.Float64frombits(uint64((x + 1023) * (1 << 52))) }

// Spare reports whether the endpoint can serve one more request at once, as far as is known. An
// idle one can.
func (e *Endpoint) Spare(now time.Duration) bool { return e.room(now, false) }

// room reports whether the endpoint can serve one more request at once. For a stuck request it reports
// whether the endpoint can serve it soon: one request may be before it, and the wait may be as long as the
// request itself takes. No request may wait for a slot in the endpoint's sidecar. Where requests usually
// wait, or nothing is known of that, a stuck request is treated like any other: a replica with one worker
// is silent for long whenever it has more than one request.
func (e *Endpoint) room(now time.Duration, stuck bool) bool {
	load := e.load(now)
	if e.set == nil || load < 1 {
		return true
	}
	if e.queueing(load) > 0 {
		return false
	}
	loads, most, guess := &e.set.loads, spareSlower, max(guessFloor, e.usualLoad)
	if stuck {
		if slower, known := loads.slower(now, levelOf(e.usualLoad)); known && slower <= spareSlower {
			load, most, guess = load-1, stuckSlower, 2*guess
		}
		if load < 1 {
			return true
		}
	}
	slower, known := loads.slower(now, levelOf(load))
	return slower <= most && (known || load < guess)
}

// Learn takes the latency of an attempt for which Started has returned found.
func (e *Endpoint) Learn(now, latency time.Duration, found Level) {
	if e.set == nil {
		return
	}
	log := log2(latency)
	e.set.loads.add(now, log, found)
	e.observePace(now, log)
}
