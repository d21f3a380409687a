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
	freezes []time.Duration // when they begin
	busy    int
	waiting []*attempt
	ends    []time.Duration // when its work is done, by worker; of the oracle alone

	app      lb.Set // the sidecar's view of the application
	endpoint *lb.Endpoint
	recent   lb.Recent
	answered time.Duration
	route    *hedge.Route
}

func newReplica(w *world, freezes []time.Duration) *replica {
	r := &replica{w: w, freezes: freezes, route: hedge.NewRoute(Policy, 1), answered: -1}
	added, _ := r.app.Update([]lb.Target{{Addr: "app"}})
	r.endpoint = added[0]
	return r
}

// finish returns when work that begins at start is done.
func (r *replica) finish(start, work time.Duration) time.Duration {
	long := r.w.Freezes.length()
	i, _ := slices.BinarySearch(r.freezes, start-long+1)
	end := start
	for ; i < len(r.freezes) && r.freezes[i] < end+work; i++ {
		work -= max(0, r.freezes[i]-end)
		end = r.freezes[i] + long
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
	a.taken = true
	if a.hedge && w.measured(a.request) {
		w.result.Reached++
	}
	r.app.Stall = lb.Stall{After: r.route.Estimator.StallAfter(w.now, &r.route.Policy)}
	a.foundByApp = r.endpoint.Started(w.now)
	if r.busy < r.workers() {
		r.start(a)
		return
	}
	r.waiting = append(r.waiting, a)
}

// admits reports whether a hedge may be passed to the application, as proxy/exchange decides it.
func (r *replica) admits(q *request) bool {
	if r.w.Queued {
		return r.busy < r.workers()
	}
	return r.app.PickHedge(r.w.now, r.w.about(q, forHedge), nil, true) != nil
}

func (r *replica) refuse(a *attempt) {
	a.refused = true
	r.respond(a)
}

func (r *replica) start(a *attempt) {
	r.busy++
	r.w.after(r.finish(r.w.now, a.work)-r.w.now, finishes, nil, a)
}

func (r *replica) finished(a *attempt) {
	w := r.w
	r.busy--
	took := w.now - a.reached
	r.endpoint.Answered(w.now, took)
	r.endpoint.Learn(w.now, took, a.foundByApp)
	r.recent.Add(w.now, took)
	r.answered = w.now
	if !a.hedge {
		r.route.Estimator.Observe(w.now, took)
	}
	for len(r.waiting) > 0 {
		next := r.waiting[0]
		r.waiting = r.waiting[1:]
		if !next.gone {
			r.start(next)
			break
		}
	}
	r.respond(a)
}

// respond sends the response of a with the report of the load.
func (r *replica) respond(a *attempt) {
	a.load = lb.Load{Pending: r.endpoint.Pending(), Latency: r.recent.At(r.w.now), SinceAnswer: -1}
	if r.answered >= 0 {
		a.load.SinceAnswer = r.w.now - r.answered
	}
	if r.w.Queued {
		a.load.Queued = max(0, a.load.Pending-r.busy)
	}
	r.w.after(network, returns, nil, a)
}

// cancel withdraws an attempt from the queue of the sidecar. What the application has, it keeps.
func (r *replica) cancel(a *attempt) {
	if !r.w.Queued || !a.taken || a.gone {
		return
	}
	for _, q := range r.waiting {
		if q == a {
			a.gone, a.refused = true, true
			r.endpoint.Dropped(r.w.now)
			r.respond(a)
		}
	}
}

// oracle returns when work that arrives after the network would be done, and by which worker.
func (r *replica) oracle(work time.Duration) (done time.Duration, worker int) {
	at := r.w.now + network
	if r.w.Workers == 0 {
		return r.finish(at, work), -1
	}
	if r.ends == nil {
		r.ends = make([]time.Duration, r.w.Workers)
	}
	for i, end := range r.ends {
		if end < r.ends[worker] {
			worker = i
		}
	}
	return r.finish(max(at, r.ends[worker]), work), worker
}
