package proxy

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
func (ex *exchange) onHedgeTimer() {
	if ex.state != exchangeActive || ex.n == maxAttempts {
		return
	}
	if now := ex.w.loop.Now(); now > ex.hedgeDue+hedgeSlack {
		ex.hedgeDue = hedgeWhenever
		ex.w.loop.After(0, &ex.hedge)
		return
	}
	if ex.route.hedging.Shadows() {
		ex.watch.Asked = ex.w.loop.Now()
		return
	}
	ex.askHedge()
}

// askHedge: every gate must be open for a hedge to go.
func (ex *exchange) askHedge() {
	s, r, now := ex.svc, ex.route.hedging, ex.w.loop.Now()
	ep := s.set.PickHedge(now, ex.w.rnd, ex.tried[:ex.n])
	silent := r.Estimator.SilentAfter(now, &r.Policy)
	q := hedge.Question{
		Idempotent: ex.req.Idempotent,
		Cascade:    ex.cascade(),
		Left:       ex.req.Deadline - now,
		Endpoints:  s.set.Len(),
		Stuck:      ex.stuck(now, silent),
	}
	q.Heard, q.Silent = s.set.Silence(now, silent, &ex.route.silence)
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

// stuck tells whether the endpoints of all attempts that the caller still waits for
// have been silent for so long.
func (ex *exchange) stuck(now, silent time.Duration) bool {
	sent := 0
	for i := range ex.attempts[:ex.n] {
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
func (ex *exchange) cascade() bool { return ex.attempt > 0 || ex.hedged }

// armHedge has the exchange ask for a hedge that long from now.
func (ex *exchange) armHedge(now, delay time.Duration) {
	ex.hedgeDue = now + delay
	ex.w.loop.After(delay, &ex.hedge)
}

// hedgeMissed: a hedge reached no application, so it cost that nothing and counts
// for nothing; another endpoint may be asked one delay later, maxMissed times.
func (ex *exchange) hedgeMissed() {
	now := ex.w.loop.Now()
	ex.route.hedging.Missed()
	if ex.missed == maxMissed || len(ex.req.Body) > missBody {
		return
	}
	ex.missed++
	ex.svc.hedging.Refund(now)
	ex.hedges--
	if ex.state == exchangeActive && !ex.hedge.Armed() {
		ex.armHedge(now, ex.route.hedging.Again(now))
	}
}
