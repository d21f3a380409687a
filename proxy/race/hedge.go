package race

import (
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/loop"
)

// maxMissed bounds the hedges of one request that are refused and tried elsewhere.
// Each sends the whole request for nothing, and uses up one of MaxAttempts. A hedge
// with more than missBody bytes of body counts even if it is refused.
const (
	maxMissed = 2
	missBody  = 64 << 10
)

// startHedging arms the hedge timer, in shadow mode only of a request that is watched. A batch
// request is not hedged, and tells nothing about how long others take.
func (r *Race) startHedging(now time.Duration) {
	r.watch = hedge.Watch{}
	if r.Batch {
		return
	}
	h := r.Policy.Hedging
	r.Service.Hedging.Primary(now, h)
	if r.Policy.classHeader != "" && r.Class == nil {
		r.Class = protocol.Find(r.request.Headers, r.Policy.classHeader)
	}
	r.watch.Class = h.ClassOf(now, r.Class, len(r.request.Body))
	if r.NoHedge || h.Policy.Mode == hedge.Off {
		return
	}
	if h.Shadow() != nil && r.request.Idempotent && !r.cascade() && r.Service.Set.Len() > 1 {
		h.Begin(&r.watch)
	}
	if h.Policy.Mode == hedge.On || r.watch.Watched {
		r.watch.Paid = h.DrawPaid(now, r.watch.Class)
		r.armHedge(now, h.DelayOf(now, r.watch.Class))
	}
}

// onHedgeTimer asks for a hedge. If the loop itself is late, it first handles the events that
// came meanwhile: they may contain the response, and show that endpoints are not silent.
func (r *Race) onHedgeTimer() {
	if r.state != raceOn || r.Launched == MaxAttempts {
		return
	}
	if now := r.shard.Loop.Now(); now > r.hedgeDue+loop.Slack {
		r.hedgeDue = loop.Whenever
		r.shard.Loop.After(0, &r.hedge)
		return
	}
	if r.Policy.Hedging.Shadow() != nil {
		r.watch.Asked = r.shard.Loop.Now()
		return
	}
	if r.notBefore > 0 && r.putOffHedge(r.shard.Loop.Now()) {
		return
	}
	r.askHedge()
}

// putOffHedge reports whether a server wants no hedge now. It asks again when one may follow: where
// a retry comes first, one delay after that.
func (r *Race) putOffHedge(now time.Duration) bool {
	wait := r.notBefore - now
	if wait <= 0 && !r.retry.Armed() {
		return false
	}
	if r.retry.Armed() {
		wait += r.Policy.Hedging.Again(now, r.watch.Class)
	}
	if r.mayFollow() {
		r.armHedge(now, wait)
	}
	return true
}

// askHedge sends a hedge if every gate is open.
func (r *Race) askHedge() {
	s, h, now := r.Service, r.Policy.Hedging, r.shard.Loop.Now()
	silent := h.SilentAfter(now)
	stuck := r.stalled(now, silent)
	ep := s.Set.PickHedge(s.Query(r.Key, r.tried[:r.Launched]), stuck)
	q := hedge.Question{
		Class:      r.watch.Class,
		Idempotent: r.request.Idempotent,
		Paid:       r.watch.Paid,
		Cascade:    r.cascade(),
		Left:       r.request.Deadline - now,
		Endpoints:  s.Set.Len(),
		Stuck:      stuck,
	}
	q.Active, q.Silent = s.Set.CountSilent(now, silent, &r.Policy.silence)
	if ep != nil {
		q.Untried = 1
	}
	gate := s.Hedging.Decide(now, h, &q)
	switch gate {
	case hedge.Open:
		r.hedges++
	case hedge.Budget:
		r.watch.Paid = false
	}
	if (gate == hedge.Open || gate.Transient()) && r.hedges < h.Policy.Max {
		r.armHedge(now, h.Again(now, r.watch.Class))
	}
	if gate == hedge.Open {
		r.launch(hedgeAttempt, ep)
	}
}

// stalled reports whether all endpoints with an attempt were silent for longer than silent.
func (r *Race) stalled(now, silent time.Duration) bool {
	sent := 0
	for i := range r.attempts[:r.Launched] {
		a := &r.attempts[i]
		if a.state != attemptSent {
			continue
		}
		if !a.ep.Stalled(now, silent) {
			return false
		}
		sent++
	}
	return sent > 0
}

func (r *Race) armHedge(now, delay time.Duration) {
	r.hedgeDue = now + delay
	r.shard.Loop.After(delay, &r.hedge)
}

// hedgeMissed gives back the budget of a hedge that reached no application. Another
// endpoint may be tried one delay later, at most maxMissed times.
func (r *Race) hedgeMissed() {
	now := r.shard.Loop.Now()
	r.Policy.Hedging.Missed()
	if r.missedHedges == maxMissed || len(r.request.Body) > missBody {
		r.wasted++
		return
	}
	r.missedHedges++
	r.Service.Hedging.Refund(now)
	r.hedges--
	if r.state == raceOn && !r.hedge.Armed() {
		r.armHedge(now, r.Policy.Hedging.Again(now, r.watch.Class))
	}
}
