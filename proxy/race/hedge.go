package race

import (
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/loop"
)

// maxReplaced bounds the refused hedges of one request that other hedges replace. Each refused hedge has sent the
// whole request for nothing, and uses up one of MaxAttempts. A hedge with more than replacedBody bytes of body is not
// replaced.
const (
	maxReplaced  = 2
	replacedBody = 64 << 10
)

// hedging decides when a hedge of one race is sent.
type hedging struct {
	race     *Race
	first    time.Duration // the delay of the first hedge, until an attempt is sent; 0 means no hedge
	timer    loop.Timer    // armed until the next hedge may be due
	due      loop.Due
	sent     uint8 // hedges sent, without those that were replaced
	refused  uint8 // of sent, hedges that were refused
	replaced uint8 // hedges that were refused, and that another hedge may replace
}

func (h *hedging) init(r *Race) {
	h.race, h.timer.Fire, h.timer.Pooled = r, h.onTimer, true
}

func (h *hedging) reset() { h.first, h.sent, h.refused, h.replaced = 0, 0, 0, 0 }

// start earns the request's part of the budget, finds its class of latency, and chooses the delay of the first hedge. In
// shadow mode there is a delay only if the request is watched. A batch request is not hedged, earns nothing, and
// tells nothing about how long others take.
func (h *hedging) start(now time.Duration) {
	r, route, w := h.race, h.race.Policy.HedgeRoute, &h.race.learning.watch
	*w = hedge.Watch{}
	if r.Batch {
		return
	}
	r.Service.Hedging.Primary(now, route)
	if r.Policy.classHeader != "" && r.Class == nil {
		r.Class = protocol.Find(r.request.Headers, r.Policy.classHeader)
	}
	w.Class = route.Latencies.ClassOf(now, r.Class, len(r.request.Body))
	if r.NoHedge || route.Policy.Mode == hedge.Off {
		return
	}
	if route.Shadow != nil && r.request.Idempotent && !r.cascade() && r.Service.Set.Len() > 1 {
		route.Shadow.Begin(w)
	}
	if route.Policy.Mode == hedge.On || w.Watched {
		w.Paid = route.Delays.DrawPaid(now, w.Class)
		h.first = route.Delays.Of(now, w.Class)
	}
}

// onSent arms the timer of the first hedge once the first attempt is sent: before, the attempt may wait for a slot or for
// answers to probes.
func (h *hedging) onSent(now time.Duration) {
	if h.first > 0 {
		h.arm(now, h.first)
		h.first = 0
	}
}

// mayHedge reports whether no gate that holds for the whole request is closed.
func (h *hedging) mayHedge() bool {
	r := h.race
	return r.Policy.HedgeRoute.Policy.Mode == hedge.On && !r.NoHedge && !r.Batch && r.request.Idempotent && !r.cascade() &&
		r.Service.Set.Len() > 1
}

// onTimer asks for a hedge. If the loop itself is late, it first handles the events that
// came meanwhile: they may contain the response, and show that endpoints are not silent.
func (h *hedging) onTimer() {
	r := h.race
	if r.state != raceOn || r.Launched == MaxAttempts {
		return
	}
	now := r.shard.Loop.Now()
	switch {
	case h.due.PutOff(now):
		r.shard.Loop.After(0, &h.timer)
	case r.Policy.HedgeRoute.Shadow != nil:
		h.watch(now)
	case r.retrying.notBefore == 0 || !h.putOff(now):
		h.ask(now)
	}
}

// watch notes that a hedge would be decided on now. As long as the request is not stuck, it looks again later.
func (h *hedging) watch(now time.Duration) {
	route, w := h.race.Policy.HedgeRoute, &h.race.learning.watch
	if w.Asked == 0 {
		w.Asked = now
	}
	if h.stuck(now, route.Delays.SilentAfter(now)) {
		w.Stuck = now
		return
	}
	h.arm(now, w.LookAgain(now, h.again(now)))
}

// putOff reports whether a server wants no hedge now. It arms the timer for when one may follow: where a retry comes
// first, one delay after that.
func (h *hedging) putOff(now time.Duration) bool {
	retries := &h.race.retrying
	wait, retry := retries.notBefore-now, retries.timer.Armed()
	if wait <= 0 && !retry {
		return false
	}
	if retry {
		wait += h.again(now)
	}
	if retries.mayFollow() {
		h.arm(now, wait)
	}
	return true
}

// ask sends a hedge if every gate is open. It picks the endpoint first, since one of the gates asks for it.
func (h *hedging) ask(now time.Duration) {
	r, route, w := h.race, h.race.Policy.HedgeRoute, &h.race.learning.watch
	s, silentAfter := r.Service, route.Delays.SilentAfter(now)
	stuck := h.stuck(now, silentAfter)
	ep := s.Set.PickHedge(s.Query(r.Key, r.tried[:r.Launched]), stuck)
	q := hedge.Question{
		Class:      w.Class,
		Idempotent: r.request.Idempotent,
		Paid:       w.Paid,
		Cascade:    r.cascade(),
		Left:       r.request.Deadline - now,
		Endpoints:  s.Set.Len(),
		Stuck:      stuck,
	}
	q.Active, q.Silent = r.Policy.silence.Count(&s.Set, now, silentAfter)
	if ep != nil {
		q.Untried = 1
	}
	gate := s.Hedging.Decide(now, route, &q)
	switch gate {
	case hedge.Open:
		h.sent++
	case hedge.Budget:
		w.Paid = false
	}
	if (gate == hedge.Open || gate.Transient()) && int(h.sent) < route.Policy.Max {
		h.arm(now, h.again(now))
	}
	if gate == hedge.Open {
		r.ties.launch(ep)
	}
}

// stuck reports whether all endpoints with an attempt have been silent for longer than after.
func (h *hedging) stuck(now, after time.Duration) bool {
	r, sent := h.race, 0
	for i := range r.attempts[:r.Launched] {
		a := &r.attempts[i]
		if a.state != attemptSent {
			continue
		}
		if !a.visit.ep.Stalled(now, after) {
			return false
		}
		sent++
	}
	return sent > 0
}

// again returns the delay after which another hedge may follow.
func (h *hedging) again(now time.Duration) time.Duration {
	return h.race.Policy.HedgeRoute.Delays.Again(now, h.race.learning.watch.Class)
}

func (h *hedging) arm(now, delay time.Duration) {
	h.due = loop.Due(now + delay)
	h.race.shard.Loop.After(delay, &h.timer)
}

// onRefused gives back the budget of a hedge that reached no application because of f. Another endpoint may be tried one delay
// later, at most maxReplaced times, unless f says that none takes the request.
func (h *hedging) onRefused(now time.Duration, f *fault.Failure) {
	r := h.race
	r.Policy.HedgeRoute.Counts.HedgesMissed++
	if h.replaced == maxReplaced || len(r.request.Body) > replacedBody {
		h.refused++
		return
	}
	h.replaced++
	h.sent--
	r.Service.Hedging.Refund(now)
	if takenElsewhere(f) && r.state == raceOn && !h.timer.Armed() {
		h.arm(now, h.again(now))
	}
}

// takenElsewhere reports whether another endpoint may take a hedge that was refused with f.
func takenElsewhere(f *fault.Failure) bool {
	return f == fault.NoSlot || f.Retry != fault.RetryNever && f.Retry != fault.RetryUnsendable
}
