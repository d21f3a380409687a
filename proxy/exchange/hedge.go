package exchange

import (
	"math"
	"time"

	"github.com/remora-proxy/remora/proxy/hedge"
)

// maxMissed bounds the hedges of one exchange that are refused and tried elsewhere.
// Each sends the whole request for nothing, and uses up one of maxAttempts. A hedge
// with more than missBody bytes of body counts even if it is refused.
const (
	maxMissed = 2
	missBody  = 64 << 10
)

// hedgeSlack is how late the hedge timer may fire. If it is later, the loop was busy or
// had no CPU, and the timer is put off once. After that it may be late by any time
// (hedgeWhenever), so that a loop that is always late hedges too.
const (
	hedgeSlack    = 500 * time.Microsecond
	hedgeWhenever = math.MaxInt64 - hedgeSlack
)

// onHedgeTimer asks for a hedge. If the loop itself is late, it first handles the events that
// came meanwhile: they may contain the response, and show that endpoints are not silent.
func (ex *Exchange) onHedgeTimer() {
	if ex.state != exchangeOpen || ex.launched == maxAttempts {
		return
	}
	if now := ex.shard.Loop.Now(); now > ex.hedgeDue+hedgeSlack {
		ex.hedgeDue = hedgeWhenever
		ex.shard.Loop.After(0, &ex.hedge)
		return
	}
	if ex.Route.hedging.Shadows() {
		ex.watch.Asked = ex.shard.Loop.Now()
		return
	}
	if ex.notBefore > 0 && ex.putOffHedge(ex.shard.Loop.Now()) {
		return
	}
	ex.askHedge()
}

// putOffHedge reports whether a server wants no hedge now. It asks again when one may follow: where
// a retry comes first, one delay after that.
func (ex *Exchange) putOffHedge(now time.Duration) bool {
	wait := ex.notBefore - now
	if wait <= 0 && !ex.retry.Armed() {
		return false
	}
	if ex.retry.Armed() {
		wait += ex.Route.hedging.Again(now, ex.watch.Class)
	}
	if ex.mayFollow() {
		ex.armHedge(now, wait)
	}
	return true
}

// askHedge sends a hedge if every gate is open.
func (ex *Exchange) askHedge() {
	s, r, now := ex.service, ex.Route.hedging, ex.shard.Loop.Now()
	silent := r.Estimator.SilentAfter(now, &r.Policy)
	stuck := ex.stalled(now, silent)
	ep := s.set.PickHedge(s.query(ex.key, ex.tried[:ex.launched]), stuck)
	q := hedge.Question{
		Class:      ex.watch.Class,
		Idempotent: ex.Request.Idempotent,
		Cascade:    ex.cascade(),
		Left:       ex.Request.Deadline - now,
		Endpoints:  s.set.Len(),
		Stuck:      stuck,
	}
	q.Heard, q.Silent = s.set.Silence(now, silent, &ex.Route.silence)
	if ep != nil {
		q.Untried = 1
	}
	gate := s.hedging.Decide(now, r, &q)
	if gate == hedge.Open {
		ex.hedges++
	}
	if (gate == hedge.Open || gate.Transient()) && ex.hedges < r.Policy.Max {
		ex.armHedge(now, r.Again(now, ex.watch.Class))
	}
	if gate == hedge.Open {
		ex.launch(hedgeAttempt, ep)
	}
}

// stalled reports whether all endpoints with an attempt were silent for longer than silent.
func (ex *Exchange) stalled(now, silent time.Duration) bool {
	sent := 0
	for i := range ex.attempts[:ex.launched] {
		a := &ex.attempts[i]
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

// cascade reports whether the request is itself a hedge or retry of its caller.
func (ex *Exchange) cascade() bool { return ex.attempt > 0 || ex.hedged }

func (ex *Exchange) armHedge(now, delay time.Duration) {
	ex.hedgeDue = now + delay
	ex.shard.Loop.After(delay, &ex.hedge)
}

// hedgeMissed gives back the budget of a hedge that reached no application. Another
// endpoint may be tried one delay later, at most maxMissed times.
func (ex *Exchange) hedgeMissed() {
	now := ex.shard.Loop.Now()
	ex.Route.hedging.Missed()
	if ex.missedHedges == maxMissed || len(ex.Request.Body) > missBody {
		ex.wasted++
		return
	}
	ex.missedHedges++
	ex.service.hedging.Refund(now)
	ex.hedges--
	if ex.state == exchangeOpen && !ex.decided && !ex.hedge.Armed() {
		ex.armHedge(now, ex.Route.hedging.Again(now, ex.watch.Class))
	}
}

// While requests are in flight, a service looks each lookEvery whether its endpoints stall together,
// and in a stall each lookStalled, to learn its length. A silence shorter than that is none.
const (
	lookEvery   = 100 * time.Millisecond
	lookStalled = 10 * time.Millisecond
)

// onLook looks whether the endpoints stall together. Like onHedgeTimer, it first handles the events
// that came while the loop was late.
func (s *Service) onLook() {
	now := s.Shard.Loop.Now()
	if now > s.lookDue+hedgeSlack {
		s.lookDue = hedgeWhenever
		s.Shard.Loop.After(0, &s.look)
		return
	}
	after := max(s.set.Stall.After, lookStalled)
	heard, silent := s.set.Silence(now, after, &s.census)
	stalls, together := &s.hedging.Stalls, hedge.SilentTogether(s.set.Len(), heard, silent)
	switch stalls.Look(now, together, s.census.Since, after) {
	case hedge.PeriodFound:
		if s.shared.periodic.Add(1) == 1 {
			p, last := s.period(now)
			s.log.Warn("periodic stalls: no hedge is sent in them", "found", p.Describe(s.Config.Name, last))
		}
	case hedge.PeriodOver:
		if s.shared.periodic.Add(-1) == 0 {
			s.log.Warn("periodic stalls are over", "service", s.Config.Name)
		}
	}
	switch {
	case stalls.Open():
		s.lookAfter(now, lookStalled)
	case s.inFlight() > 0:
		s.lookAfter(now, lookEvery)
	}
}

func (s *Service) lookAfter(now, d time.Duration) {
	s.lookDue = now + d
	s.Shard.Loop.After(d, &s.look)
}

// period returns the period of stalls, and the time of day of its latest beat, zero without a clock.
func (s *Service) period(now time.Duration) (p hedge.StallPeriod, last time.Time) {
	p = s.hedging.Stalls.Period(now)
	if wall := s.Shard.Process.Now(); p.Every > 0 && !wall.IsZero() {
		last = wall.Add(p.Last - now)
	}
	return p, last
}
