package exchange

import (
	"math"
	"time"

	"github.com/remora-proxy/remora/proxy/hedge"
)

// maxMissed bounds the hedges of one exchange that are turned away and tried
// elsewhere: each sends the whole request for nothing, and takes the place of an
// attempt that a retry may need later. One with more than missBody bytes of body
// costs a hedge wherever it ends.
const (
	maxMissed = 2
	missBody  = 64 << 10
)

// hedgeSlack is how late a hedge timer may be before the loop counts as having been
// away. A timer that was put off once for that fires whenever it does: a loop that
// is always late hedges all the same.
const (
	hedgeSlack    = 500 * time.Microsecond
	hedgeWhenever = math.MaxInt64 - hedgeSlack
)

// onHedgeTimer: the answer is late, or the loop is: it was busy or had no CPU when
// the timer was due, and what came meanwhile is looked at first. Else answered
// requests would be hedged, and endpoints whose answers lie here taken for silent.
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
	ex.askHedge()
}

// askHedge: every gate must be open for a hedge to go.
func (ex *Exchange) askHedge() {
	s, r, now := ex.service, ex.Route.hedging, ex.shard.Loop.Now()
	ep := s.set.PickHedge(now, ex.shard.Rand, ex.tried[:ex.launched])
	silent := r.Estimator.SilentAfter(now, &r.Policy)
	q := hedge.Question{
		Idempotent: ex.Request.Idempotent,
		Cascade:    ex.cascade(),
		Left:       ex.Request.Deadline - now,
		Endpoints:  s.set.Len(),
		Stuck:      ex.stalled(now, silent),
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
		ex.armHedge(now, r.Again(now))
	}
	if gate == hedge.Open {
		ex.launch(hedgeAttempt, ep)
	}
}

// stalled tells whether the endpoints of all attempts that the caller still waits for
// have been silent for so long.
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

// cascade tells whether the request is itself a hedge or retry of whoever sent it.
func (ex *Exchange) cascade() bool { return ex.attempt > 0 || ex.hedged }

// armHedge has the exchange ask for a hedge that long from now.
func (ex *Exchange) armHedge(now, delay time.Duration) {
	ex.hedgeDue = now + delay
	ex.shard.Loop.After(delay, &ex.hedge)
}

// hedgeMissed: a hedge reached no application, so it cost that nothing and counts
// for nothing; another endpoint may be asked one delay later, maxMissed times.
func (ex *Exchange) hedgeMissed() {
	now := ex.shard.Loop.Now()
	ex.Route.hedging.Missed()
	if ex.missedHedges == maxMissed || len(ex.Request.Body) > missBody {
		return
	}
	ex.missedHedges++
	ex.service.hedging.Refund(now)
	ex.hedges--
	if ex.state == exchangeOpen && !ex.hedge.Armed() {
		ex.armHedge(now, ex.Route.hedging.Again(now))
	}
}
