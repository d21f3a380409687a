package forecast

import (
	"cmp"
	"math"
	"time"

	"github.com/remora-proxy/remora/proxy/hedge/budget"
	"github.com/remora-proxy/remora/proxy/hedge/draw"
	"github.com/remora-proxy/remora/proxy/hedge/worth"
)

// shadowDelays are forecast besides the delay in force, those within [MinDelay, MaxDelay].
var shadowDelays = [...]time.Duration{
	1 * time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond,
	5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond,
}

// maxEvery bounds Shadow.every, so that twice the number does not overflow.
const maxEvery = 1 << 20

// never is the time of the first decision for a request that has none.
const never = time.Duration(math.MaxInt64)

// Settings are those of a route's hedging.
type Settings struct {
	MinDelay, MaxDelay time.Duration // bounds of the delays that are forecast beside the delay in force

	Budget   float64 // tokens that a primary earns
	MinBurst float64 // tokens that the bucket holds at any rate; see budget.NewIncome
	Max      int     // hedges of one request
	Sample   float64 // share of the requests that are watched; 0 means all

	AskInterval time.Duration // shortest time between two decisions for one request
}

// State is that of a route when an attempt ends.
type State struct {
	Primaries uint64        // requests that began
	Delay     time.Duration // in force for requests of the attempt's class
	Paid      bool          // reports whether the delay in force has the budget pay for a hedge of this request
	Median    time.Duration // latency of the class; 0 means unknown
	Slower    float64       // how many times as long a request of the class takes as one of the quickest class
}

// Watch is what is known of one primary attempt. The zero value is an attempt that is not followed.
type Watch struct {
	// Hedgeable reports whether the request may be hedged: it is idempotent, it
	// is no hedge or retry itself, and its caller did not opt out.
	Hedgeable bool

	// Watched reports whether the forecast is made of this request, among others. A watched request needs
	// a hedge timer. Other hedgeable requests only show how long a hedge would have taken.
	Watched bool

	// Reset reports whether the attempt would be reset if a hedge came first. Then nobody would learn how long the
	// attempt would have taken, nor what the hedge has saved.
	Reset bool

	Left time.Duration // from the start of the attempt to the request's deadline

	// Asked is when the request's hedge timer fired, which was armed with the delay in force; 0 means
	// that it has not. The timer is late if the loop was not scheduled: a hedge would then have been sent
	// no sooner.
	Asked time.Duration

	// Stuck is since when the request is stuck, as far as its timer has shown; 0 means that it is not.
	Stuck time.Duration

	sent     time.Duration
	endpoint uint32
	noted    bool   // reports whether the timeline has the attempt
	number   uint32 // there
}

// LookAgain returns the time after which the timer of a watched request that is not stuck fires again. That is interval, the
// time after which a real request asks again, but at least a part of the time since Asked: a request may last for minutes.
// So Stuck is late by at most that part.
func (w *Watch) LookAgain(now, interval time.Duration) time.Duration {
	return max(interval, (now-w.Asked)/time.Duration(model.asks))
}

// Shadow forecasts for several delays what hedging would do to a route.
type Shadow struct {
	settings Settings
	admitted bool // it has a part of its Quota

	every uint32 // one in so many requests is watched, chosen at random
	wait  uint32 // requests until the next one that is watched
	draws draw.Numbers

	timeline timeline
	notedAt  time.Duration
	seen     uint64 // primaries whose budget is earned
	income   budget.Income
	plans    []plan
	halves   [2]*half // the current one, and the one before; nil before the first watched request
}

// plan is the forecast for one delay.
type plan struct {
	delay  time.Duration // 0 means the delay in force
	tokens budget.Hedges
	worth  worth.Gate
}

// New returns the Shadow of a route with the settings.
func New(of Settings) *Shadow {
	s := &Shadow{settings: of, every: 1, wait: 1, draws: 1, income: budget.NewIncome(of.MinBurst)}
	if of.Sample > 0 {
		s.every = uint32(min(math.Round(1/of.Sample), maxEvery))
	}
	s.plan(0)
	for _, d := range shadowDelays {
		if of.MinDelay <= d && d <= of.MaxDelay {
			s.plan(d)
		}
	}
	return s
}

func (s *Shadow) plan(delay time.Duration) {
	s.plans = append(s.plans, plan{delay: delay, tokens: budget.Full(&s.income)})
}

// maxWatched is how many routes of a loop shadow mode watches, in at most 40 MiB.
const maxWatched = 1024

// Quota bounds the memory of shadow mode on one loop. The first routes with a request that may be
// hedged take it. The zero value is empty.
type Quota struct{ taken int }

// Begin decides whether a request that may be hedged is watched. quota may be nil: no bound.
func (s *Shadow) Begin(w *Watch, quota *Quota) {
	if s.admitted || s.admit(quota) {
		w.Hedgeable, w.Watched = true, s.choose()
	}
}

func (s *Shadow) admit(quota *Quota) bool {
	if quota != nil {
		if quota.taken == maxWatched {
			return false
		}
		quota.taken++
	}
	s.admitted = true
	return true
}

// Retire gives back the part of the quota. The Shadow gets no more requests.
func (s *Shadow) Retire(quota *Quota) {
	if s.admitted && quota != nil {
		quota.taken--
	}
}

// choose reports whether a request is watched: one in every, at random, lest the choice is always
// of the same endpoint.
func (s *Shadow) choose() bool {
	if s.wait--; s.wait > 0 {
		return false
	}
	s.wait = 1 + s.draws.Next()%(2*s.every-1)
	return true
}

// Sent records that the primary of a hedgeable request is handed to the endpoint with the given
// number. If note is true, the caller calls Note at once.
func (s *Shadow) Sent(now time.Duration, w *Watch, endpoint uint32) (note bool) {
	w.sent, w.endpoint, w.noted = now, endpoint, false
	return now >= s.notedAt+model.noteEvery
}

// Note has the latency of the request stand for that of a hedge at that time. unavailable reports
// whether the endpoint was stalled or had no spare capacity before.
func (s *Shadow) Note(now time.Duration, w *Watch, unavailable bool) {
	s.notedAt = now
	w.noted, w.number = true, s.timeline.add(now, w.endpoint, unavailable)
}

// Follows reports whether End must be called when the attempt ends.
func (w *Watch) Follows() bool { return w.noted || w.Watched }

// End records that a primary got its response, or was cut off at its deadline. If the request is not watched, End needs
// only Slower of the state.
func (s *Shadow) End(now time.Duration, route State, w *Watch, cutOff bool) {
	took := now - w.sent
	if w.noted && !cutOff {
		s.timeline.setLatency(w.number, time.Duration(float64(took)/route.Slower))
	}
	if !w.Watched {
		return
	}
	h := s.half(now, route.Primaries)
	h.add(took, cutOff)
	s.income.Add(now, float64(route.Primaries-s.seen)*s.settings.Budget)
	s.seen = route.Primaries
	for i := range s.plans {
		p := &s.plans[i]
		when := s.askTimes(w, cmp.Or(p.delay, route.Delay), route.Delay)
		if took <= when.first {
			continue
		}
		better, hedges := s.hedgedLatency(p, now, &route, w, when)
		h.changes[i].hedges += uint64(hedges)
		if better < took {
			h.changes[i].move(took, better, cutOff)
		}
		switch {
		case hedges == 0 || better == took && cutOff:
		case better < took && w.Reset:
			p.worth.Unknown()
		default:
			p.worth.Judge(took, took-better)
		}
	}
}

// askTimes says when the decision for a request is made, counted from its start.
type askTimes struct{ first, interval time.Duration }

// askTimes returns when the loop would have decided with the given delay, current being the
// delay in force. If the loop reached the timer of the current delay late, or after the
// response, it would have reached that of a longer delay no sooner.
func (s *Shadow) askTimes(w *Watch, delay, current time.Duration) askTimes {
	interval := max(delay, s.settings.AskInterval)
	switch {
	case delay < current:
		return askTimes{delay, interval}
	case w.Asked == 0:
		return askTimes{never, interval}
	}
	return askTimes{max(delay, w.Asked-w.sent), interval}
}

// hedgedLatency returns the latency that the caller would have seen, and the number of hedges.
func (s *Shadow) hedgedLatency(p *plan, now time.Duration, route *State, w *Watch, when askTimes) (best time.Duration, sent int) {
	tokens, paid := p.tokens.Have(now, &s.income), p.delay > 0 || route.Paid
	best = now - w.sent
	for at := when.first; at < best && at <= when.first+time.Duration(model.asks)*when.interval && sent < s.settings.Max; at += when.interval {
		if w.Left-at < route.Median {
			break
		}
		other := s.timeline.near(w.sent+at, w.endpoint)
		if other == nil {
			break
		}
		if other.took == tookUnavailable {
			continue // as at a transient gate
		}
		stuck := w.Stuck > 0 && w.sent+at >= w.Stuck
		if !stuck && !p.worth.Allows() {
			p.worth.Skip()
			continue
		}
		if !stuck && !paid || tokens < s.income.Need(now, stuck) {
			continue
		}
		spent := float64(s.every) // for as many that are not watched
		p.tokens.Take(spent)
		tokens -= spent
		p.worth.CountHedge()
		sent++
		if other.took != tookPending {
			best = min(best, at+time.Duration(float64(other.latency())*route.Slower))
		}
	}
	return best, sent
}
