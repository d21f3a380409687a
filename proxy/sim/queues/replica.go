package queues

import (
	"math"
	"slices"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/hedge"
)

// replica is an application of some workers with a queue before them, and its sidecar.
type replica struct {
	w       *world
	freezes []time.Duration // when they begin; those that are over are removed
	busy    int
	waiting []*attempt // from passed on
	passed  int
	// Of the oracle alone: when the work of each worker is done, and who is the first.
	ends  []time.Duration
	first int

	app      lb.Set // the sidecar's view of the application
	endpoint *lb.Endpoint
	recent   lb.Recent
	answered time.Duration
	route    *hedge.Route
}

func newReplica(w *world, freezes []time.Duration) *replica {
	r := &replica{w: w, freezes: freezes, route: hedge.NewRoute(w.policy(), 1), answered: -1}
	added, _ := r.app.Update([]lb.Target{{Addr: "app"}})
	r.endpoint = added[0]
	return r
}

// finish returns when work that begins at start is done. No later work begins sooner.
func (r *replica) finish(start, work time.Duration) time.Duration {
	long := r.w.Freezes.length()
	for len(r.freezes) > 0 && r.freezes[0]+long <= start {
		r.freezes = r.freezes[1:]
	}
	end := start
	for _, at := range r.freezes {
		if at >= end+work {
			break
		}
		work -= max(0, at-end)
		end = at + long
	}
	return end + work
}

func (r *replica) workers() int {
	if r.w.Workers == 0 {
		return math.MaxInt
	}
	return r.w.Workers
}

func (r *replica) receive(a *attempt) {
	w := r.w
	a.reached = w.now
	if a.over { // cancelled on its way
		r.refuse(a)
		return
	}
	if a.hedge && !w.Direct && !r.admits(a.request) {
		r.refuse(a)
		return
	}
	if a.hedge && !w.Queued && w.measured(a.request) {
		w.result.Reached++
	}
	if w.way.hedges() {
		a.class = r.route.Latencies.ClassOf(w.now, nil, a.request.size)
		r.app.Stall = lb.Stall{After: r.route.Latencies.Primaries.StallAfter(w.now, &r.route.Policy)}
	}
	a.foundByApp = r.endpoint.Start(w.now)
	if r.busy < r.workers() {
		r.start(a)
		return
	}
	if !a.hedge {
		a.request.arm(math.MaxInt64)
	}
	a.request.held++
	if len(r.waiting) == cap(r.waiting) && r.passed > len(r.waiting)/2 { // make room without growing
		r.waiting, r.passed = r.waiting[:copy(r.waiting, r.waiting[r.passed:])], 0
	}
	r.waiting = append(r.waiting, a)
}

// admits reports whether a hedge may be passed to the application, as proxy/service decides it.
func (r *replica) admits(q *request) bool {
	if r.w.Queued {
		return r.w.way == Tied || r.busy < r.workers()
	}
	ok := r.app.PickHedge(lb.Query{Now: r.w.now, Rand: r.w.about(q, forHedge)}, true) != nil
	return ok
}

func (r *replica) refuse(a *attempt) {
	a.refused = true
	r.respond(a)
}

func (r *replica) start(a *attempt) {
	r.busy++
	a.working = true
	if a.hedge && r.w.Queued && r.w.measured(a.request) {
		r.w.result.Reached++
	}
	if a.tied {
		r.w.send(started, a)
	}
	done := r.finish(r.w.now, a.work)
	if !a.hedge {
		a.request.arm(done + network)
	}
	r.w.after(done-r.w.now, finishes, a)
}

func (r *replica) finished(a *attempt) {
	w := r.w
	r.busy--
	took := w.now - a.reached
	if w.way.hedges() {
		r.learn(a, took)
	} else {
		r.endpoint.Drop()
	}
	r.recent.Add(w.now, took)
	r.answered = w.now
	if r.passed < len(r.waiting) {
		next := r.next()
		r.start(next)
		w.release(next.request)
	}
	r.respond(a)
}

// learn notes how long the application took for a. Only the admission of hedges reads it.
func (r *replica) learn(a *attempt, took time.Duration) {
	now, latencies := r.w.now, &r.route.Latencies
	r.endpoint.Finish(now, took)
	r.endpoint.Learn(now, latencies.Scaled(now, took, a.class), a.foundByApp)
	if !a.hedge {
		latencies.Observe(now, took, a.class)
	}
}

// next takes the attempt out of the queue that gets a worker: hedges come last, as proxy/service has it.
func (r *replica) next() *attempt {
	i := r.passed
	if r.w.way == Tied {
		i += max(0, slices.IndexFunc(r.waiting[i:], func(a *attempt) bool { return !a.hedge }))
	}
	a := r.waiting[i]
	if i == r.passed {
		r.passed++
	} else {
		r.waiting = slices.Delete(r.waiting, i, i+1)
	}
	return a
}

// respond sends the response of a with the report of the load.
func (r *replica) respond(a *attempt) {
	a.load = lb.Load{Pending: r.endpoint.Pending(), Latency: r.recent.At(r.w.now), SinceResponse: -1}
	if r.answered >= 0 {
		a.load.SinceResponse = r.w.now - r.answered
	}
	if r.w.Queued {
		a.load.Queued = max(0, a.load.Pending-r.busy)
	}
	r.w.send(returns, a)
}

// cancel withdraws an attempt from the queue of the sidecar. What the application has, it keeps.
func (r *replica) cancel(a *attempt) {
	i := slices.Index(r.waiting[r.passed:], a)
	if !r.w.Queued || i < 0 {
		return
	}
	r.waiting = slices.Delete(r.waiting, r.passed+i, r.passed+i+1)
	r.endpoint.Drop()
	r.refuse(a)
	r.w.release(a.request)
}

// tie notes that the consumer wants to know when a gets a worker.
func (r *replica) tie(a *attempt) {
	if a.tied = true; a.working {
		r.w.send(started, a)
	}
}

// free returns when a worker is free for what is sent now. It is for the oracle.
func (r *replica) free() time.Duration {
	at := r.w.now + network
	if r.w.Workers == 0 {
		return at
	}
	if r.ends == nil {
		r.ends = make([]time.Duration, r.w.Workers)
	}
	return max(at, r.ends[r.first])
}

// occupy gives that worker work until a time.
func (r *replica) occupy(until time.Duration) {
	if r.w.Workers == 0 {
		return
	}
	r.ends[r.first] = until
	for i, end := range r.ends {
		if end < r.ends[r.first] {
			r.first = i
		}
	}
}
