package hedge

import (
	"cmp"
	"math"
	"time"
)

// shadowDelays are what shadow mode tries beside the delay that is in force, as far
// as they lie within [MinDelay, MaxDelay].
var shadowDelays = [...]time.Duration{
	1 * time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond,
	5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond,
}

// never is when a request asks that does not.
const never = time.Duration(math.MaxInt64)

// maxAsks bounds how often one request asks in vain for its hedge in the forecast,
// as it does each Route.Again when the gate was transient.
const maxAsks = 32

// Watch follows one primary attempt through shadow mode. The zero value is one
// that is not followed.
type Watch struct {
	// Hedgeable: the request might be hedged: it is idempotent, no hedge or retry
	// itself, and its caller did not opt out.
	Hedgeable bool

	// Left is the time from the start of the attempt to the request's deadline.
	Left time.Duration

	// Asked is when the request's hedge timer fired, armed with the delay in force;
	// 0: it has not. Between the two a loop may have been away, and then no hedge
	// would have left any sooner.
	Asked time.Duration

	sent     time.Duration
	endpoint uint32
	index    uint8 // in its slot of the timeline
	listed   bool  // it has one
}

// shadow forecasts for a number of delays what hedging would do to a route. How
// long a hedge would have taken is learned from a primary that was sent to another
// endpoint at the moment of the hedge: when that one is late too, because all
// endpoints are slow together, the hedge gains nothing. It takes some 150 KiB.
type shadow struct {
	timeline timeline
	earned   float64 // hedges that the budget has allowed since the start
	income   income
	minBurst float64
	plans    []plan
}

// plan is the forecast for one delay.
type plan struct {
	delay time.Duration // 0: the one in force

	tokens  float64
	settled float64 // what of shadow.earned is in tokens
	wins    wins
	changes [2]change
}

// change is what hedging would have done in one half-window of the estimator's
// long window: how the counts of its histogram would differ, and the hedges sent.
type change struct {
	epoch    int64
	hedges   uint64
	censored int64
	counts   [nBuckets]int32
}

func newShadow(p *Policy, loops int) *shadow {
	s := &shadow{minBurst: max(1, minOverall/float64(max(1, loops)))}
	delays := []time.Duration{0}
	for _, d := range shadowDelays {
		if p.MinDelay <= d && d <= p.MaxDelay {
			delays = append(delays, d)
		}
	}
	for _, d := range delays {
		s.plans = append(s.plans, plan{delay: d, tokens: s.minBurst})
	}
	return s
}

// primary counts a request, which earns budget.
func (s *shadow) primary(now time.Duration, budget float64) {
	s.earned += budget
	s.income.add(now, budget)
}

func (s *shadow) start(now time.Duration, w *Watch, endpoint uint32, shut bool) {
	w.sent, w.endpoint = now, endpoint
	w.index, w.listed = s.timeline.add(now, endpoint, shut)
}

// end takes in that a primary was answered, or cut off at its deadline.
func (s *shadow) end(now time.Duration, r *Route, w *Watch, cutOff bool) {
	took := now - w.sent
	if w.listed && !cutOff {
		s.timeline.answered(w.sent, w.index, took)
	}
	if !w.Hedgeable {
		return
	}
	current := r.Delay(now)
	for i := range s.plans {
		p := &s.plans[i]
		when := w.asks(cmp.Or(p.delay, current), current)
		if took <= when.first {
			continue
		}
		c := p.change(now)
		if better := s.hedged(p, c, now, r, w, when); better < took {
			p.wins.win()
			c.move(took, better, cutOff)
		}
	}
}

// asks is when a request asks for its hedge, from its start, and how often after that.
type asks struct{ first, every time.Duration }

// asks is when the loop would have asked with such a delay, current being the one in
// force. A loop that came to the timer of that one late, or after the answer, would
// not have come to a later one sooner.
func (w *Watch) asks(delay, current time.Duration) asks {
	again := max(delay, againAfter)
	switch {
	case delay < current:
		return asks{delay, again}
	case w.Asked == 0:
		return asks{never, again}
	}
	return asks{max(delay, w.Asked-w.sent), again}
}

// hedged returns when the caller would have been answered with hedges, and counts
// them in c.
func (s *shadow) hedged(p *plan, c *change, now time.Duration, r *Route, w *Watch, when asks) time.Duration {
	s.refill(p, now)
	median := r.Estimator.estimate(now, r.Policy.Quantile).median
	best, sent := now-w.sent, 0
	for at := when.first; at < best && at <= when.first+maxAsks*when.every && sent < r.Policy.Max; at += when.every {
		if w.Left-at < median || !p.wins.pass() {
			break
		}
		other := s.timeline.near(w.sent+at, w.endpoint)
		if other == nil {
			break
		}
		if other.took == tookShut || p.tokens < 1 {
			continue // as at a transient gate
		}
		p.tokens--
		p.wins.hedge()
		c.hedges++
		sent++
		best = min(best, at+other.latency())
	}
	return best
}

// refill adds to p's bucket what has been earned since it was last looked at.
func (s *shadow) refill(p *plan, now time.Duration) {
	gain := s.earned - p.settled
	p.settled = s.earned
	p.tokens = min(p.tokens+gain, max(s.minBurst, s.income.perSecond(now)))
	p.wins.primary(gain)
}

// change returns the running half-window's.
func (p *plan) change(now time.Duration) *change {
	epoch := int64(now / longHalf)
	c := &p.changes[epoch&1]
	if c.epoch != epoch {
		*c = change{epoch: epoch}
	}
	return c
}

// move counts a request that took so long, or was cut off, as answered after to.
func (c *change) move(took, to time.Duration, cutOff bool) {
	if cutOff {
		c.censored--
	} else {
		c.counts[bucketOf(took)]--
	}
	c.counts[bucketOf(to)]++
}

// Forecast is what hedging with one delay would have done during the last 30 to
// 60 s.
type Forecast struct {
	Delay   time.Duration
	Current bool // Delay is the one that is in force now, which may have been another before
	Latency Distribution
	Hedges  uint64
}

func (s *shadow) forecasts(now time.Duration, r *Route) []Forecast {
	var out []Forecast
	for i := range s.plans {
		p := &s.plans[i]
		f := Forecast{Delay: p.delay, Latency: r.Estimator.Distribution(now)}
		if p.delay == 0 {
			f.Delay, f.Current = r.Delay(now), true
		}
		epoch := int64(now / longHalf)
		for j := range p.changes {
			if c := &p.changes[j]; c.epoch == epoch || c.epoch == epoch-1 {
				f.Hedges += c.hedges
				f.Latency.change(c)
			}
		}
		out = append(out, f)
	}
	return out
}
