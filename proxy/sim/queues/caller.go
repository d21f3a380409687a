package queues

import (
	"math"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/hedge"
)

// maxMissed is how often a request's hedge may be refused; see proxy/race/hedge.go.
const maxMissed = 2

// caller is one loop of a consumer's sidecar.
type caller struct {
	w       *world
	set     lb.Set
	service hedge.Service
	route   *hedge.Route
	silent  lb.SilentCount
	turn    int // of HAProxy
}

func newCaller(w *world) *caller {
	c := &caller{w: w, service: hedge.NewService(1), route: hedge.NewRoute(w.policy(), 1)}
	var targets []lb.Target
	for i := range w.replicas {
		targets = append(targets, lb.Target{Addr: address(i)})
	}
	added, _ := c.set.Update(targets)
	for i, e := range added {
		e.Ext = w.replicas[i]
	}
	c.turn = len(w.callers)
	return c
}

func (c *caller) begin(r *request, work time.Duration) {
	w := c.w
	if w.way == Oracle {
		c.foresee(r, work)
		return
	}
	if w.way == HAProxy {
		c.send(r, c.leastOwn(), false, work)
		return
	}
	r.class = c.route.Latencies.ClassOf(w.now, nil, r.size)
	delay := c.route.Delays.Of(w.now, r.class)
	e := &c.route.Latencies.Primaries
	c.set.Stall = lb.Stall{After: e.StallAfter(w.now, &c.route.Policy), Probe: e.Delay(w.now, &c.route.Policy)}
	c.send(r, c.set.Pick(lb.Query{Now: w.now, Rand: w.about(r, forPick)}), false, work)
	if w.way.hedges() {
		c.service.Primary(w.now, c.route)
		c.route.Delays.Choose(w.now)
		r.paid = c.route.Delays.DrawPaid(w.now, r.class)
		r.setTimer(delay)
	}
}

// leastOwn returns the endpoint with the fewest own requests, of equals the next in turn.
func (c *caller) leastOwn() *lb.Endpoint {
	c.turn++
	n := c.set.Len()
	best := c.set.At(c.turn % n)
	for i, at := 1, c.turn%n+1; i < n && best.Pending() > 0; i, at = i+1, at+1 {
		if at == n {
			at = 0
		}
		if e := c.set.At(at); e.Pending() < best.Pending() {
			best = e
		}
	}
	return best
}

// foresee gives the request to the replica that is done with it first.
func (c *caller) foresee(r *request, work time.Duration) {
	w := c.w
	var best *replica
	first, soonest := time.Duration(math.MaxInt64), w.now+network+work
	for _, rep := range w.replicas {
		free := rep.free()
		if free+work >= first { // also without freezes it is not better
			continue
		}
		if done := rep.finish(free, work); done < first {
			best, first = rep, done
		}
		if first == soonest {
			break
		}
	}
	best.occupy(first)
	if w.measured(r) {
		w.took(r, first+network-r.start)
	}
}

// started takes the hedge out of its queue, as a worker has the primary.
func (r *request) started() {
	if hedge := &r.attempts[1]; hedge.endpoint != nil && !hedge.over && !hedge.refused {
		r.caller.w.events.send(cancels, hedge)
	}
}

func (c *caller) send(r *request, e *lb.Endpoint, isHedge bool, work time.Duration) {
	w := c.w
	a := &r.attempts[0]
	if isHedge {
		a = &r.attempts[1]
	}
	*a = attempt{request: r, number: a.number, endpoint: e, replica: e.Ext.(*replica), hedge: isHedge, sent: w.now, work: work}
	r.tried = append(r.tried, e)
	a.found = e.Start(w.now)
	w.events.send(reaches, a)
}

// late handles the hedge timer; see proxy/race/hedge.go.
func (r *request) late() {
	c, now := r.caller, r.caller.w.now
	if r.done {
		return
	}
	silent := c.route.Delays.SilentAfter(now)
	q := hedge.Question{Class: r.class, Paid: r.paid, Idempotent: true, Left: math.MaxInt64, Endpoints: c.set.Len(), Stuck: r.stuck(now, silent)}
	q.Active, q.Silent = c.silent.Count(&c.set, now, silent)
	e := c.set.PickHedge(lb.Query{Now: now, Rand: c.w.about(r, forHedge), Tried: r.tried}, q.Stuck)
	if e != nil {
		q.Untried = 1
	}
	gate := c.service.Decide(now, c.route, &q)
	measured := c.w.measured(r)
	if measured {
		c.w.result.Gates[gate]++
	}
	if gate == hedge.Open {
		if measured {
			c.w.result.Hedges++
		}
		c.send(r, e, true, c.w.Service.draw(c.w.about(r, forHedge), r.size))
		if c.w.way == Tied {
			c.w.events.send(ties, &r.attempts[0])
		}
		return
	}
	if gate == hedge.Budget {
		r.paid = false
	}
	if gate.Transient() {
		c.w.after(c.route.Delays.Again(now, r.class), late, &r.attempts[0])
	}
}

// stuck reports whether all endpoints with the request have been silent for this time.
func (r *request) stuck(now, silent time.Duration) bool {
	sent := 0
	for i := range r.attempts {
		a := &r.attempts[i]
		if a.endpoint == nil || a.refused {
			continue
		}
		if !a.endpoint.Stalled(now, silent) {
			return false
		}
		sent++
	}
	return sent > 0
}

func (c *caller) returned(a *attempt) {
	w, r := c.w, a.request
	if w.way == HAProxy {
		a.endpoint.Drop()
		c.took(r)
		return
	}
	if !a.refused && w.way.hedges() {
		c.heard(a.endpoint)
	}
	if !w.Direct {
		a.endpoint.Report(w.now, a.load, a.endpoint.Pending())
	}
	if a.hedge {
		c.service.Done()
	}
	if a.refused {
		a.endpoint.Drop()
		if a.hedge {
			c.missed(r)
		}
		return
	}
	if a.hedge {
		c.route.Latencies.Responded(w.now, w.now-a.sent)
	}
	a.endpoint.Finish(w.now, w.now-a.sent)
	a.endpoint.Learn(w.now, c.route.Latencies.Scaled(w.now, w.now-a.sent, r.class), a.found)
	if second := &r.attempts[1]; a != second && second.endpoint != nil && !second.refused {
		saved := time.Duration(0)
		if r.done {
			saved = w.now - r.overtaken
		}
		c.route.Savings.Judge(w.now, w.now-a.sent, saved)
	}
	if r.done {
		return
	}
	r.done = true
	if !a.hedge {
		c.route.Latencies.Observe(w.now, w.now-a.sent, r.class)
		if c.service.Together.Covers(a.sent, w.now) {
			c.route.Latencies.Futile(w.now, w.now-a.sent)
		}
	}
	c.took(r)
	for i := range r.attempts {
		other := &r.attempts[i]
		if other.endpoint == nil || other == a || other.refused || other.over {
			continue
		}
		other.over = true
		if !other.hedge {
			c.route.Latencies.Censor(w.now, r.class)
			if c.service.Together.Covers(other.sent, w.now) {
				c.route.Latencies.FutileCensor(w.now)
			}
			c.route.Savings.Overtaken(w.now, w.now-other.sent)
			r.overtaken = w.now
		}
		w.events.send(cancels, other)
	}
	if a.hedge {
		c.route.Counts.HedgesWon++
		if w.measured(r) {
			w.result.Won++
		}
	}
}

// took counts the latency of r, which has its response now.
func (c *caller) took(r *request) {
	if w := c.w; w.measured(r) {
		w.took(r, w.now-r.start)
	}
}

// heard notes that e responds now; see proxy/service/stalls.go.
func (c *caller) heard(e *lb.Endpoint) {
	now, after := c.w.now, c.set.Stall.After
	if e.Silence(now) < after {
		return
	}
	if active, silent := c.silent.Count(&c.set, now, after); hedge.SilentTogether(c.set.Len(), active, silent) {
		c.service.Together.Note(c.silent.All, now)
	}
}

// missed handles a hedge that reached no application.
func (c *caller) missed(r *request) {
	c.route.Counts.HedgesMissed++
	if r.missed == maxMissed {
		return
	}
	r.missed++
	c.service.Refund(c.w.now)
	r.attempts[1].endpoint = nil
	if !r.done {
		c.w.after(c.route.Delays.Again(c.w.now, r.class), late, &r.attempts[0])
	}
}
