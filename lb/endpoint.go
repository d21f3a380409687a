package lb

import (
	"sync/atomic"
	"time"
)

const (
	// usualShare is the weight of a new sample in the usual load, which must outlast
	// a freeze.
	usualShare = 1.0 / 64

	// An endpoint is busy with more than busyFactor times its usual load, and
	// at least busyFloor: twice next to nothing is no load yet.
	busyFactor = 2
	busyFloor  = 4

	// stallPending is how many must wait at an endpoint before its silence
	// means anything: one alone may just be a slow request.
	stallPending = 2
)

// Load is what an endpoint's sidecar says about the service beside it.
type Load struct {
	// Pending is the number of requests of all consumers that are at the app
	// or queued for it; Queued is the part of them in the queue.
	Pending, Queued int

	// Latency is the app's recent latency; 0: unknown.
	Latency time.Duration

	// SinceAnswer is how long ago the app last answered anybody; negative:
	// it has not answered yet.
	SinceAnswer time.Duration
}

// Endpoint is one replica as one loop sees it. It lives from the Update that
// brings its address to the one that no longer has it; what is pending at it
// then may still be counted off.
type Endpoint struct {
	// Addr, Zone, Weight and Unhealthy are as the last Update had them. Weight
	// is > 0.
	Addr      string
	Zone      string
	Weight    float64
	Unhealthy bool

	// Ext is the core's: the upstream of this address. lb never touches it.
	Ext any

	weight  float64       // what picks go by: Weight times ramp
	success float64       // share of good attempts; 1 with no failure in the record
	avoided bool          // unhealthy or ejected, and not too many are
	process *atomic.Int32 // see CountIn
	set     *Set          // nil once removed
	pending int
	streams int           // open ones: load, but nothing that owes an answer
	started time.Duration // when the last attempt was handed to it
	// quietSince is since when it has had something to answer and has not:
	// the last answer, or the start of what is pending if it was idle before.
	quietSince time.Duration
	latency    Recent
	usual      float64 // moving average of the load that attempts found
	attempts   uint32  // how many are in usual, up to 1/usualShare

	reported   bool
	reportedAt time.Duration
	others     float64 // reported by others, per Weight

	full float64 // how many requests the app takes at once; 0: no limit has shown
	pace pace

	peak   float64 // nanoseconds; see observePeak
	peakAt time.Duration
	turn   float64 // virtual time of the next; see WeightedRoundRobin

	ramp      float64 // part of the weight that has been reached
	rampSince time.Duration

	health
}

func newEndpoint(addr string, s *Set) *Endpoint {
	return &Endpoint{Addr: addr, set: s, ramp: 1, success: 1}
}

// Started counts an attempt that was handed to the endpoint: every kind, hedges
// too. Exactly one Answered or Dropped follows, at the latest when the attempt's
// deadline passes. A cancelled attempt stays counted until its endpoint has
// answered it or said that it dropped it: else a frozen replica would look idle
// as soon as its victims are rescued.
func (e *Endpoint) Started(now time.Duration) {
	if e.pending == 0 {
		e.quietSince = now
	}
	if e.attempts < 1/usualShare {
		e.attempts++
	}
	e.usual += (e.load(now) - e.usual) / float64(e.attempts)
	e.pending++
	if e.process != nil {
		e.process.Add(1)
	}
	e.started = now
}

// Answered counts the answer to an attempt, waited for or not. latency is the
// time since its Started, or 0 where it tells nothing: that of a failure, which
// may be quick because no work was done.
func (e *Endpoint) Answered(now, latency time.Duration) {
	e.over()
	e.quietSince = now
	if latency <= 0 {
		return
	}
	e.latency.Add(now, latency)
	e.observePeak(now, latency)
	e.observePace(now, latency)
	half := e.half(now)
	half.answers++
	half.latency += latency
}

// rank decides between equals: the recent latency, of an endpoint that fails for
// each attempt that is served. Where nothing is known it is 0, to find out.
func (e *Endpoint) rank(now time.Duration) float64 {
	latency := e.latency.At(now)
	if e.success == 1 {
		return float64(latency)
	}
	if latency == 0 {
		latency = latencyLife
	}
	return float64(latency) / e.success
}

// Dropped counts an attempt that ended without an answer of the app: withdrawn,
// refused, reset, or past its deadline. It says nothing about the app, so an
// endpoint that was silent stays so, unless nothing is left that it could answer.
func (e *Endpoint) Dropped(now time.Duration) { e.over() }

func (e *Endpoint) over() {
	if e.pending == 0 {
		panic("lb: an attempt ended that was not started")
	}
	e.pending--
	if e.process != nil {
		e.process.Add(-1)
	}
}

// Opened counts a stream, such as an opaque TCP connection, among the load of the
// endpoint until its Closed. Since nobody knows when a stream should answer, it
// plays no part in stalls, latency and the usual load; it may be a probe.
func (e *Endpoint) Opened(now time.Duration) {
	e.stream(1)
	e.started = now
}

// Closed counts a stream off.
func (e *Endpoint) Closed() {
	if e.streams == 0 {
		panic("lb: a stream ended that was not opened")
	}
	e.stream(-1)
}

func (e *Endpoint) stream(n int) {
	e.streams += n
	if e.process != nil {
		e.process.Add(int32(n))
	}
}

// Streams is the number of this loop's streams at the endpoint.
func (e *Endpoint) Streams() int { return e.streams }

// CountIn makes n, which all loops of the process share, count the attempts of
// them all at the address; this loop's are carried over to it. Without one, this
// loop takes itself for the only one.
func (e *Endpoint) CountIn(n *atomic.Int32) {
	if n == e.process {
		return
	}
	if e.process != nil {
		e.process.Add(int32(-e.pending - e.streams))
	}
	n.Add(int32(e.pending + e.streams))
	e.process = n
}

// Pending is the number of this loop's attempts at the endpoint.
func (e *Endpoint) Pending() int { return e.pending }

// Own is the number of this process's attempts at the endpoint.
func (e *Endpoint) Own() int {
	if e.process == nil {
		return e.pending + e.streams
	}
	return int(e.process.Load())
}

// Latency is the moving average of the latency of answers to this loop, or, where
// there was none for a second, of what was reported; 0 when nothing is known.
func (e *Endpoint) Latency() time.Duration { return e.latency.Mean() }

// Silent is how long the endpoint has had something of this loop to answer and
// has answered nobody; 0 when nothing is pending.
func (e *Endpoint) Silent(now time.Duration) time.Duration {
	if e.pending == 0 {
		return 0
	}
	return now - e.quietSince
}

// Stalled tells whether two or more attempts are pending and nothing has been
// answered for after. With after 0, nothing is ever stalled.
func (e *Endpoint) Stalled(now, after time.Duration) bool {
	return after > 0 && e.pending >= stallPending && now-e.quietSince >= after
}

// Busy tells whether the endpoint has more than twice its usual load, so that a
// hedge would queue.
func (e *Endpoint) Busy(now time.Duration) bool {
	load := e.load(now)
	return load >= busyFloor && load > busyFactor*e.usual
}

// load is the requests at the endpoint, own and reported.
func (e *Endpoint) load(now time.Duration) float64 {
	return float64(e.Own()) + e.othersLoad(now)*e.Weight
}

// score is what LeastPending compares: the load per weight, scaled by what the
// endpoint can carry. Without load it is 0, so that none is left untried.
func (e *Endpoint) score(now time.Duration) float64 { return e.scoreOf(e.load(now)) }

// scoreWithOne is what the score would be with one request more.
func (e *Endpoint) scoreWithOne(now time.Duration) float64 { return e.scoreOf(e.load(now) + 1) }

func (e *Endpoint) scoreOf(load float64) float64 {
	return e.perWeight(load+queueCost*e.queueing(load)) * e.drag()
}

// perWeight divides a load by the weight. An endpoint that fails every second
// attempt at once would seem to work twice as fast, so its load is taken per
// attempt that is served.
func (e *Endpoint) perWeight(load float64) float64 {
	return load / (e.weight * e.success)
}
