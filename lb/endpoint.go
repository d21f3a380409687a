package lb

import (
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/lb/spare"
)

// stallPending is how many attempts must be pending before the silence of an endpoint means
// anything: a single attempt may be a slow request.
const stallPending = 2

// Load is the load of a service as reported by its sidecar.
type Load struct {
	// Pending is the number of requests of all consumers at the application or queued for it.
	// Queued is the number of those in the queue.
	Pending, Queued int

	Latency time.Duration // recent, of the application; 0 means unknown

	// SinceAnswer is the time since the application's last response to any consumer; negative
	// means none yet.
	SinceAnswer time.Duration
}

// Endpoint is one replica as one loop sees it, from the Update that adds its address to the
// one that removes it. Attempts that are pending then must still be counted down.
type Endpoint struct {
	// As of the last Update. Weight is always > 0.
	Addr      string
	Host      string // name that Addr was resolved from, or ""
	Zone      string
	Weight    float64
	Unhealthy bool

	Ext any // the caller's: the upstream of this address

	weight  float64 // effective weight of picks: Weight times ramp and share
	success float64 // discount of its record; 1 if that has no bad attempt
	avoided bool    // unhealthy or ejected, while the set does not panic
	set     *Set    // nil once removed
	inFlight
	started time.Duration // when the last attempt was handed to it
	// quietSince is the last response, or the start of the oldest pending attempt if the
	// endpoint was idle before.
	quietSince time.Duration
	latency    Recent
	usualLoad  spare.Usual

	reportState

	capacityState
	peakState
	turn float64 // virtual time of the next turn; see WeightedRoundRobin

	rampState
	health
	refusalState

	index int // in the set
}

// inFlight is this loop's work at the endpoint, and where else it counts.
type inFlight struct {
	pending int
	streams int           // open streams: load without a pending response
	process *atomic.Int32 // see CountIn
	ring    *ring         // that the endpoint is on; nil without a keyed policy
}

// add changes the totals that the work counts in.
func (f *inFlight) add(n int) {
	if f.process != nil {
		f.process.Add(int32(n))
	}
	if f.ring != nil {
		f.ring.load += n
	}
}

type reportState struct {
	reported   bool
	reportedAt time.Duration
	reportFor  time.Duration // how long it distinguishes the endpoint in picks
	others     float64       // load of others, per Weight
	othersCost float64       // score of that load
	batch      int           // attempts that are load only without a report; see CountBatch
}

// capacityState is how many requests the endpoint serves at once, and how fast; see pace.go.
type capacityState struct {
	capacity   float64 // requests that the application serves at once; 0 means no limit is known
	pace       pace
	usual      float64 // latency by the pace, in nanoseconds; 0 means unknown
	loadFactor float64 // how much more its load counts than that of an average endpoint

	full   float64       // requests per second at full utilization, by its own reports; 0 means unknown
	fullAt time.Duration // of the latest report
	share  float64       // of the weight, by full: 1 means that of an average endpoint
}

type peakState struct {
	peak   float64 // nanoseconds; see observePeak
	peakAt time.Duration
}

type rampState struct {
	ramp      float64 // the share of the weight that has been reached
	rampSince time.Duration
}

func newEndpoint(addr string, s *Set) *Endpoint {
	return &Endpoint{Addr: addr, set: s, rampState: rampState{ramp: 1}, success: 1, capacityState: capacityState{loadFactor: 1, share: 1}}
}

// Started counts an attempt handed to the endpoint, including hedges. Exactly one Answered or
// Dropped must follow, at the latest when the attempt's deadline passes. A cancelled attempt
// stays counted until the endpoint has responded to it or reported that it dropped it.
// Otherwise a frozen replica would look idle once its requests are hedged elsewhere.
// Started returns the level of load that the attempt found, for Learn.
func (e *Endpoint) Started(now time.Duration) (found spare.Level) {
	if e.pending == 0 {
		e.quietSince = now
	}
	load := e.ownWork() + e.othersLoad(now)*e.Weight // no phantom: it slows nothing down
	e.usualLoad.Add(load)
	e.pending++
	e.add(1)
	e.started = now
	return spare.LevelOf(load)
}

// Answered counts the response to an attempt, even if nobody awaits the response any more. latency is
// the time since Started. It is 0 for a failure, which may be quick because no work was done.
func (e *Endpoint) Answered(now, latency time.Duration) {
	e.end()
	e.quietSince = now
	if latency <= 0 {
		return
	}
	e.latency.Add(now, latency)
	e.observePeak(now, latency)
	half := e.half(now)
	half.answers++
	half.latency += latency
}

// rankMemory is how long a recent latency orders endpoints, in multiples of the latency: about as long
// as the queue behind the latency may last. Without the bound, a sidecar with few requests would avoid an
// endpoint long after the queue was gone, as would all other sidecars that met the queue.
const rankMemory = 2

// rank orders endpoints of equal load by the recent latency, divided by the discount for failures. Once
// the recent latency is old, a usual latency that is less takes its place. rank is 0 if nothing is known,
// so that the endpoint is tried.
func (e *Endpoint) rank(now time.Duration) float64 {
	latency := float64(e.latency.At(now))
	if e.usual > 0 && float64(now-e.latency.at) > rankMemory*latency {
		latency = min(latency, e.usual)
	}
	if e.success == 1 {
		return latency
	}
	if latency == 0 {
		latency = float64(latencyLife)
	}
	return latency / e.success
}

// Dropped counts an attempt that ended without a response of the application: cancelled,
// refused, reset, or past its deadline. So a silence continues while anything is pending.
func (e *Endpoint) Dropped(now time.Duration) { e.end() }

func (e *Endpoint) end() {
	if e.pending == 0 {
		panic("lb: an attempt ended that was not started")
	}
	e.pending--
	e.add(-1)
}

// CountBatch counts n pending attempts as batch; a negative n counts -n attempts as batch no longer.
// Batch attempts are load only if the endpoint's sidecar reports no load: a sidecar that reports lets
// batch wait for other requests, and counts in its report the batch that does not wait.
func (e *Endpoint) CountBatch(n int) {
	e.batch += n
	if e.process != nil {
		e.process.Add(int32(-n))
	}
}

// Opened counts a stream, such as an opaque TCP connection, in the load until its Closed. A
// stream has no time by which it should respond, so it does not affect stalls, latency and the
// usual load. It may be a probe.
func (e *Endpoint) Opened(now time.Duration) {
	e.stream(1)
	e.started = now
}

// Closed counts a stream down.
func (e *Endpoint) Closed() {
	if e.streams == 0 {
		panic("lb: a stream ended that was not opened")
	}
	e.stream(-1)
}

func (e *Endpoint) stream(n int) {
	e.streams += n
	e.add(n)
}

// Streams returns the number of this loop's streams at the endpoint.
func (e *Endpoint) Streams() int { return e.streams }

// CountIn makes n, which all loops of the process share, count their attempts at the address.
// Without such a count, this loop assumes that it is the only one.
func (e *Endpoint) CountIn(n *atomic.Int32) {
	if n == e.process {
		return
	}
	if e.process != nil {
		e.process.Add(int32(-e.pending + e.batch - e.streams))
	}
	n.Add(int32(e.pending - e.batch + e.streams))
	e.process = n
}

// Pending returns the number of this loop's attempts at the endpoint.
func (e *Endpoint) Pending() int { return e.pending }

// Own returns the number of this process's attempts at the endpoint, without batch.
func (e *Endpoint) Own() int {
	if e.process == nil {
		return e.pending - e.batch + e.streams
	}
	return int(e.process.Load())
}

// Latency returns the moving average of the latency of responses to this loop. After a second without
// a response it is the reported latency; 0 means unknown.
func (e *Endpoint) Latency() time.Duration { return e.latency.Mean() }

// Silent returns how long attempts of this loop have been pending without any response of the
// endpoint. It is 0 if nothing is pending.
func (e *Endpoint) Silent(now time.Duration) time.Duration {
	if e.pending == 0 {
		return 0
	}
	return now - e.quietSince
}

// Stalled reports whether two or more attempts are pending and the endpoint has sent no
// response for the time after. 0 disables stalls.
func (e *Endpoint) Stalled(now, after time.Duration) bool {
	return after > 0 && e.pending >= stallPending && now-e.quietSince >= after
}

func (e *Endpoint) load(now time.Duration) float64 {
	return e.ownLoad(now) + e.othersLoad(now)*e.Weight
}

func (e *Endpoint) ownLoad(now time.Duration) float64 {
	if e.phantom > 0 {
		return e.ownWork() + e.phantomNow(now)
	}
	return e.ownWork()
}

func (e *Endpoint) ownWork() float64 {
	if e.batch > 0 && !e.reported {
		return float64(e.Own() + e.batch)
	}
	return float64(e.Own())
}

// score is what LeastPending compares: the load per weight, scaled by the endpoint's capacity.
// It is 0 without load, so that every endpoint is tried.
func (e *Endpoint) score(now time.Duration) float64 { return e.scoreWith(now, 0) }

func (e *Endpoint) scoreWithOne(now time.Duration) float64 { return e.scoreWith(now, 1) }

func (e *Endpoint) scoreOf(load float64) float64 {
	return e.perWeight(load+queueCost*e.queueing(load)) * e.loadFactor
}

// perWeight divides a load by the weight, scaled by the discount for failures: an endpoint
// that fails every second attempt immediately would seem twice as fast.
func (e *Endpoint) perWeight(load float64) float64 {
	return load / (e.weight * e.success)
}
