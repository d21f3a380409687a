package hedge

import (
	"cmp"
	"math"
	"time"
)

// shadowDelays are forecast besides the delay in force, those within [MinDelay, MaxDelay].
var shadowDelays = [...]time.Duration{
	1 * time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond,
	5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond,
}

// never is the time of the first decision for a request that has none.
const never = time.Duration(math.MaxInt64)

// maxAsks bounds how often the forecast asks the transient gates for one request.
// A real request asks again after each Route.Again.
const maxAsks = 32

// Watch is what is known of one primary attempt. The zero value is the state of one without a
// class that shadow mode doesn't follow.
type Watch struct {
	Class Class // of the request, from ClassOf

	// The rest is for shadow mode.

	// Hedgeable reports whether the request may be hedged: it is idempotent, it
	// is no hedge or retry itself, and its caller did not opt out.
	Hedgeable bool

	Left time.Duration // from the start of the attempt to the request's deadline

	// Asked is when the request's hedge timer, armed with the delay in force,
	// fired; 0 means that it has not. It is late if the loop was not scheduled,
	// and then a hedge would have been sent no sooner.
	Asked time.Duration

	sent     time.Duration
	endpoint uint32
	index    uint8 // index of the attempt's sample in its slot of the timeline
	recorded bool  // reports whether the timeline has a sample of the attempt
}

// shadow forecasts for several delays what hedging would do to a route. The latency of a hedge
// is that of a primary sent to another endpoint at the time. If that is late too, because all
// endpoints are slow together, the hedge gains nothing. The size is about 150 KiB.
type shadow struct {
	timeline timeline
	total    float64 // hedges that the budget has allowed since the start
	earned   lastSecond
	minBurst float64
	plans    []plan
}

// plan is the forecast for one delay.
type plan struct {
	delay time.Duration // 0 means the delay in force

	tokens   float64
	credited float64 // how much of shadow.total was added to tokens
	winRate  winRate
	changes  [2]change
}

// change is the effect that hedging would have had in one half-window of the estimator's long
// window: the differences of its histogram, and the hedges sent.
type change struct {
	epoch    int64
	hedges   uint64
	censored int64
	counts   [nBuckets]int32
}

func newShadow(p *Policy, loops int) *shadow {
	s := &shadow{minBurst: max(1, minTotal/float64(max(1, loops)))}
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
	s.total += budget
	s.earned.add(now, budget)
}

func (s *shadow) start(now time.Duration, w *Watch, endpoint uint32, unavailable bool) {
	w.sent, w.endpoint = now, endpoint
	w.index, w.recorded = s.timeline.add(now, endpoint, unavailable)
}

// end records that a primary got its response, or was cut off at its deadline.
func (s *shadow) end(now time.Duration, r *Route, w *Watch, cutOff bool) {
	took := now - w.sent
	if w.recorded && !cutOff {
		s.timeline.setLatency(w.sent, w.index, took)
	}
	if !w.Hedgeable {
		return
	}
	current := r.DelayOf(now, w.Class)
	for i := range s.plans {
		p := &s.plans[i]
		when := w.askTimes(cmp.Or(p.delay, current), current)
		if took <= when.first {
			continue
		}
		c := p.change(now)
		if better := s.hedgedLatency(p, c, now, r, w, when); better < took {
			p.winRate.countWin()
			c.move(took, better, cutOff)
		}
	}
}

// askTimes says when the decision for a request is made, counted from its start.
type askTimes struct{ first, interval time.Duration }

// askTimes returns when the loop would have decided with the given delay, current being the
// delay in force. If the loop reached the timer of the current delay late, or after the
// response, it would have reached that of a longer delay no sooner.
func (w *Watch) askTimes(delay, current time.Duration) askTimes {
	interval := max(delay, minAskInterval)
	switch {
	case delay < current:
		return askTimes{delay, interval}
	case w.Asked == 0:
		return askTimes{never, interval}
	}
	return askTimes{max(delay, w.Asked-w.sent), interval}
}

// hedgedLatency returns the latency that the caller would have seen with hedges, counted in c.
func (s *shadow) hedgedLatency(p *plan, c *change, now time.Duration, r *Route, w *Watch, when askTimes) time.Duration {
	s.refill(p, now)
	median := r.Estimator.estimate(now, r.Policy.Quantile).median
	best, sent := now-w.sent, 0
	for at := when.first; at < best && at <= when.first+maxAsks*when.interval && sent < r.Policy.Max; at += when.interval {
		if w.Left-at < median || !p.winRate.allows() {
			break
		}
		other := s.timeline.near(w.sent+at, w.endpoint)
		if other == nil {
			break
		}
		if other.took == tookUnavailable || p.tokens < 1 {
			continue // as at a transient gate
		}
		p.tokens--
		p.winRate.countHedge()
		c.hedges++
		sent++
		best = min(best, at+other.latency())
	}
	return best
}

// refill adds to p's bucket what was earned since the last refill.
func (s *shadow) refill(p *plan, now time.Duration) {
	gain := s.total - p.credited
	p.credited = s.total
	p.tokens = min(p.tokens+gain, max(s.minBurst, s.earned.perSecond(now)*hedgeSpan.Seconds()))
	p.winRate.earn(gain)
}

func (p *plan) change(now time.Duration) *change {
	epoch := int64(now / longHalf)
	c := &p.changes[epoch&1]
	if c.epoch != epoch {
		*c = change{epoch: epoch}
	}
	return c
}

// move counts a request with the latency took, or cut off, as one with the latency to.
func (c *change) move(took, to time.Duration, cutOff bool) {
	if cutOff {
		c.censored--
	} else {
		c.counts[bucketOf(took)]--
	}
	c.counts[bucketOf(to)]++
}

// Forecast is what hedging with one delay would have done during the last 30 to 60 s.
type Forecast struct {
	Delay   time.Duration
	Current bool // reports whether Delay is the one in force now; it may have changed meanwhile
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
