package hedge

import (
	"cmp"
	"math"
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/class"
)

// shadowDelays are forecast besides the delay in force, those within [MinDelay, MaxDelay].
var shadowDelays = [...]time.Duration{
	1 * time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond,
	5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond,
}

// maxEvery bounds shadow.every, so that twice the number does not overflow.
const maxEvery = 1 << 20

// never is the time of the first decision for a request that has none.
const never = time.Duration(math.MaxInt64)

// maxAsks bounds how often the forecast asks the transient gates for one request.
// A real request asks again after each Route.Again.
const maxAsks = 32

// Watch is what is known of one primary attempt. The zero value is an attempt without a class, which
// shadow mode does not follow.
type Watch struct {
	Class class.ID // of the request, from ClassOf

	// The rest is for shadow mode.

	// Hedgeable reports whether the request may be hedged: it is idempotent, it
	// is no hedge or retry itself, and its caller did not opt out.
	Hedgeable bool

	// Watched reports whether the forecast is made of this request, among others. A watched request needs
	// a hedge timer. Other hedgeable requests only show how long a hedge would have taken.
	Watched bool

	Left time.Duration // from the start of the attempt to the request's deadline

	// Asked is when the request's hedge timer fired, which was armed with the delay in force; 0 means
	// that it has not. The timer is late if the loop was not scheduled: a hedge would then have been sent
	// no sooner.
	Asked time.Duration

	sent     time.Duration
	endpoint uint32
	noted    bool   // reports whether the timeline has the attempt
	number   uint32 // there
}

// shadow forecasts for several delays what hedging would do to a route. The latency of a hedge is that
// of a primary sent to another endpoint at the same time. If that primary is late too, because all
// endpoints are slow together, the hedge gains nothing. A shadow takes 5 KiB for few late requests, and
// at most 40 KiB.
type shadow struct {
	admitted bool // it has a part of its Room

	every uint32 // one in so many requests is watched, chosen at random
	wait  uint32 // requests until the next one that is watched
	rand  uint32

	timeline timeline
	notedAt  time.Duration
	seen     uint64  // primaries whose budget is earned
	total    float64 // hedges that the budget has allowed since the start
	earned   lastSecond
	minBurst float64
	plans    []plan
	halves   [2]*half // the current one, and the one before; nil before the first watched request
}

// plan is the forecast for one delay.
type plan struct {
	delay time.Duration // 0 means the delay in force

	tokens   float64
	credited float64 // how much of shadow.total was added to tokens
	worth    worth
}

func newShadow(p *Policy, loops int) *shadow {
	s := &shadow{every: 1, wait: 1, rand: 1, minBurst: max(1, minTotal/float64(max(1, loops)))}
	if p.Sample > 0 {
		s.every = uint32(min(math.Round(1/p.Sample), maxEvery))
	}
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

// maxWatched is how many routes of a loop shadow mode watches, in at most 40 MiB.
const maxWatched = 1024

// Room bounds the memory of shadow mode on one loop. The first routes with a request that may be
// hedged take it. The zero value is empty.
type Room struct{ taken int }

func (s *shadow) admit(room *Room) bool {
	if room != nil {
		if room.taken == maxWatched {
			return false
		}
		room.taken++
	}
	s.admitted = true
	return true
}

// choose reports whether a request is watched: one in every, at random, lest the choice is always
// of the same endpoint.
func (s *shadow) choose() bool {
	if s.wait--; s.wait > 0 {
		return false
	}
	s.rand ^= s.rand << 13
	s.rand ^= s.rand >> 17
	s.rand ^= s.rand << 5
	s.wait = 1 + s.rand%(2*s.every-1)
	return true
}

// credit earns the budget of the primaries since the last one that was watched.
func (s *shadow) credit(now time.Duration, r *Route) {
	budget := float64(r.Counts.Primaries-s.seen) * r.Policy.Budget
	s.seen = r.Counts.Primaries
	s.total += budget
	s.earned.add(now, budget)
}

// end records that a primary got its response, or was cut off at its deadline.
func (s *shadow) end(now time.Duration, r *Route, w *Watch, cutOff bool) {
	took := now - w.sent
	if w.noted && !cutOff {
		s.timeline.setLatency(w.number, took)
	}
	if !w.Watched {
		return
	}
	h := s.half(now, r)
	h.add(took, cutOff)
	s.credit(now, r)
	current := r.DelayOf(now, w.Class)
	for i := range s.plans {
		p := &s.plans[i]
		when := w.askTimes(cmp.Or(p.delay, current), current)
		if took <= when.first {
			continue
		}
		better, hedges := s.hedgedLatency(p, now, r, w, when)
		h.changes[i].hedges += uint64(hedges)
		if better < took {
			h.changes[i].move(took, better, cutOff)
		}
		if hedges > 0 && !cutOff {
			p.worth.judge(took, took-better)
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

// hedgedLatency returns the latency that the caller would have seen, and the number of hedges.
func (s *shadow) hedgedLatency(p *plan, now time.Duration, r *Route, w *Watch, when askTimes) (best time.Duration, sent int) {
	s.refill(p, now)
	_, median, _ := r.estimateOf(now, w.Class)
	best = now - w.sent
	for at := when.first; at < best && at <= when.first+maxAsks*when.interval && sent < r.Policy.Max; at += when.interval {
		if w.Left-at < median {
			break
		}
		other := s.timeline.near(w.sent+at, w.endpoint)
		if other == nil {
			break
		}
		if other.took == tookUnavailable {
			continue // as at a transient gate
		}
		if !p.worth.allows() {
			p.worth.skip()
			continue
		}
		if p.tokens < 1 {
			continue
		}
		p.tokens -= float64(s.every) // for as many that are not watched
		p.worth.countHedge()
		sent++
		best = min(best, at+other.latency())
	}
	return best, sent
}

// refill adds to p's bucket what was earned since the last refill.
func (s *shadow) refill(p *plan, now time.Duration) {
	gain := s.total - p.credited
	p.credited = s.total
	p.tokens = min(p.tokens+gain, max(s.minBurst, s.earned.perSecond(now)*hedgeSpan.Seconds()))
}
