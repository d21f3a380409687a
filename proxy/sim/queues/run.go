package queues

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/remora-proxy/remora/proxy/hedge"
)

// Way is how requests are sent.
type Way uint8

// The ways.
const (
	Off     Way = iota // as the product does without hedging
	On                 // with hedging
	Oracle             // to the replica that will respond first, which is known in advance; no hedges
	HAProxy            // to the replica with the fewest own requests, in turn among equals; no hedges
	Ways    = int(HAProxy) + 1

	// Tied is On, but a hedge may queue until the primary gets a worker: half of the tied requests of Dean and
	// Barroso, "The Tail at Scale" (CACM, 2013), where a hedge that gets a worker withdraws the primary, too. Here the
	// primary stays, as the hedge's replica may be frozen. The cell must be Queued.
	Tied    = Way(Ways)
	allWays = Ways + 1
)

func (w Way) String() string { return [...]string{"off", "on", "oracle", "HAProxy", "tied"}[w] }

// hedges reports whether requests are hedged.
func (w Way) hedges() bool { return w == On || w == Tied }

// Length is how much is run.
type Length struct {
	Requests int // measured
	WarmUp   time.Duration
}

// Policy is the hedging of a Run: the product's defaults.
var Policy = hedge.Policy{
	Mode: hedge.On, MinDelay: time.Millisecond, MaxDelay: 50 * time.Millisecond, Budget: 0.05, Max: 1,
}

// network is the time from a consumer to a replica's sidecar, and back.
const network = 150 * time.Microsecond

// Result is what callers saw after the warm-up.
type Result struct {
	Took     *hdrhistogram.Histogram // latencies of requests in nanoseconds, to 0.1%
	Small    *hdrhistogram.Histogram // of these, small requests
	Requests int
	Hedges   int // sent
	Reached  int // of these, how many reached the application
	Won      int
	Gates    [hedge.Gates]int
}

// NewResult returns an empty result.
func NewResult() *Result { return &Result{Took: newLatencies(), Small: newLatencies()} }

func newLatencies() *hdrhistogram.Histogram {
	return hdrhistogram.New(int64(time.Microsecond), int64(time.Hour), 3)
}

// Add adds o to r.
func (r *Result) Add(o *Result) {
	r.Took.Merge(o.Took)
	r.Small.Merge(o.Small)
	r.Requests += o.Requests
	r.Hedges += o.Hedges
	r.Reached += o.Reached
	r.Won += o.Won
	for g, n := range o.Gates {
		r.Gates[g] += n
	}
}

// Quantile returns the q-quantile of the latency.
func (r *Result) Quantile(q float64) time.Duration { return quantile(r.Took, q) }

// SmallQuantile returns the q-quantile of the latency of small requests.
func (r *Result) SmallQuantile(q float64) time.Duration { return quantile(r.Small, q) }

func quantile(h *hdrhistogram.Histogram, q float64) time.Duration {
	return time.Duration(h.ValueAtQuantile(100 * q))
}

// Extra returns the hedges that reached an application, per request.
func (r *Result) Extra() float64 { return float64(r.Reached) / float64(max(1, r.Requests)) }

func (c *Cell) policy() hedge.Policy {
	p := Policy
	p.OneClass, p.Quantile = c.OneClass, c.Quantile
	if c.Budget > 0 {
		p.Budget = c.Budget
	}
	return p
}

type world struct {
	Cell
	events
	arena
	way       Way
	seed      uint64
	arrivals  *rand.Rand
	perSecond float64 // arrivals
	replicas  []*replica
	callers   []*caller
	number    uint64 // of the last request
	last      uint64
	from      time.Duration
	result    *Result
	source    rand.PCG
	random    *rand.Rand // reads source
	allTimers bool       // also those that fire for nothing; see request.arm
}

// purpose is what random numbers are for.
type purpose uint64

const (
	forArrivals purpose = iota
	forFreezes
	forPick
	forWork
	forHedge
	forSize
)

// about returns random numbers that depend only on the request and the purpose: what becomes of
// one request does not change the numbers of those after it. So two runs that differ in few
// hedges differ in little else.
func (w *world) about(r *request, p purpose) *rand.Rand {
	w.source.Seed(w.seed, r.number<<8|uint64(p))
	return w.random
}

// Run runs a case once.
func Run(c Cell, way Way, n Length, seed uint64) *Result { return newWorld(c, way, n, seed).run() }

func newWorld(c Cell, way Way, n Length, seed uint64) *world {
	w := &world{
		Cell: c, way: way, seed: seed, from: n.WarmUp, result: NewResult(),
		arrivals: rand.New(rand.NewPCG(seed, uint64(forArrivals))), perSecond: c.rate(),
	}
	w.random = rand.New(&w.source)
	w.last = uint64(n.Requests + int(c.rate()*n.WarmUp.Seconds()))
	until := time.Duration(float64(w.last)/c.rate()*float64(time.Second)) + time.Second
	freezes := rand.New(rand.NewPCG(seed, uint64(forFreezes)))
	shared := c.Freezes.starts(freezes, until)
	for range c.Replicas {
		if c.Freezes != Together {
			shared = c.Freezes.starts(freezes, until)
		}
		w.replicas = append(w.replicas, newReplica(w, shared))
	}
	for range c.Callers {
		w.callers = append(w.callers, newCaller(w))
	}
	return w
}

func (w *world) run() *Result {
	w.arriveAfter(w.gap())
	for e, ok := w.next(); ok; e, ok = w.next() {
		w.handle(e)
	}
	return w.result
}

func (w *world) gap() time.Duration {
	return time.Duration(w.arrivals.ExpFloat64() / w.perSecond * float64(time.Second))
}

func (w *world) handle(e event) {
	if e.kind() == arrives {
		w.arrive()
		return
	}
	a := w.attempt(e.attempt)
	switch e.kind() {
	case late:
		a.request.late()
	case reaches:
		a.replica.receive(a)
	case finishes:
		a.replica.finished(a)
	case returns:
		a.request.caller.returned(a)
	case cancels:
		a.replica.cancel(a)
	case ties:
		a.replica.tie(a)
	case started:
		a.request.started()
	}
	w.release(a.request)
}

func (w *world) arrive() {
	w.number++
	r := w.take()
	r.number, r.caller, r.start, r.size = w.number, w.callers[w.arrivals.IntN(len(w.callers))], w.now, small
	if share := w.Service.largeShare(); share > 0 && w.about(r, forSize).Float64() < share {
		r.size = large
	}
	if w.AnySize {
		r.size = 1 << w.about(r, forSize).IntN(20)
	}
	r.held++
	if w.number < w.last {
		w.arriveAfter(w.gap())
	}
	if w.measured(r) {
		w.result.Requests++
	}
	r.caller.begin(r, w.Service.draw(w.about(r, forWork), r.size))
	w.release(r)
}

// took counts a request's latency.
func (w *world) took(r *request, latency time.Duration) {
	record(w.result.Took, latency)
	if r.size != large && (w.AnySize || w.Service.largeShare() > 0) {
		record(w.result.Small, latency)
	}
}

func record(h *hdrhistogram.Histogram, latency time.Duration) {
	if err := h.RecordValue(int64(latency)); err != nil {
		panic(err) // an hour and more
	}
}

func (w *world) measured(r *request) bool { return r.start >= w.from }

func address(i int) string { return strconv.Itoa(i) }
