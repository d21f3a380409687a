package lb

import (
	"cmp"
	"slices"
	"time"
)

// Outlier says when an endpoint is ejected: taken out of the picks for a while
// since it does worse than it should. The zero value ejects none.
type Outlier struct {
	Consecutive int     // failures in a row; 0: not looked at
	SuccessRate float64 // ejected below it; 0: not looked at
	Latency     float64 // mean latency, in medians of the others; 0: not looked at

	// Base is the first ejection's time. Each that follows before the endpoint
	// has served for as long as it was out takes twice the last, up to 64 times
	// Base.
	Base time.Duration

	// MaxEjected is the share of the set that may be out at once.
	MaxEjected float64
}

// Reason is why an endpoint was ejected. It is small and dense, fit to index an
// array of counters.
type Reason uint8

// The reasons.
const (
	ByConsecutive Reason = iota
	BySuccessRate
	ByLatency

	// Reasons is the number of reasons.
	Reasons = int(ByLatency) + 1
)

// String returns the reason's stable name: the key of its setting.
func (r Reason) String() string {
	return [Reasons]string{"consecutive", "success_rate", "latency"}[r]
}

const (
	// A record covers the last 5 to 10 s, and means something from recordEnough
	// attempts on: of 20, an endpoint that fails every tenth fails half less
	// than once in 100,000 times.
	recordHalf   = 5 * time.Second
	recordEnough = 20

	// prior is how many good attempts an endpoint has to its credit in the
	// success that scores are divided by: a single failure says little.
	prior = 4

	maxDoublings = 6

	// reviewEvery is how often records are looked at that nothing was added to,
	// and latencies are compared.
	reviewEvery = time.Second
)

// health is what an endpoint's attempts say of it.
type health struct {
	failures int       // in a row
	record   [2]counts // of this half of the window, and of the one before
	halfAt   time.Duration

	ejected   bool
	reason    Reason
	until     time.Duration // then a probe is due
	term      time.Duration // how long the last ejection was
	doublings int
	returned  time.Duration
	sentences uint64
}

// counts is what came of attempts.
type counts struct {
	good, bad uint32
	answers   uint32        // with a latency
	latency   time.Duration // sum of theirs
}

// half is the half of the record that now is in.
func (h *health) half(now time.Duration) *counts {
	if age := now - h.halfAt; age >= recordHalf {
		h.record[1] = h.record[0]
		if age >= 2*recordHalf {
			h.record[1] = counts{}
		}
		h.record[0], h.halfAt = counts{}, now
	}
	return &h.record[0]
}

func (h *health) count(now time.Duration, good bool) {
	half := h.half(now)
	if good {
		half.good++
		h.failures = 0
	} else {
		half.bad++
		h.failures++
	}
}

// rate is the share of good attempts; 1 with no bad one in the record.
func (h *health) rate() float64 {
	good, bad := h.totals()
	if bad == 0 {
		return 1
	}
	return (good + prior) / (good + bad + prior)
}

func (h *health) totals() (good, bad float64) {
	return float64(h.record[0].good + h.record[1].good), float64(h.record[0].bad + h.record[1].bad)
}

// meanLatency is that of the answers in the record; ok is false for too few.
func (h *health) meanLatency() (mean time.Duration, ok bool) {
	n := h.record[0].answers + h.record[1].answers
	if n < recordEnough {
		return 0, false
	}
	return (h.record[0].latency + h.record[1].latency) / time.Duration(n), true
}

// Judge counts whether an attempt was served: good where the application
// answered and not with a failure of its own; bad where it did, or the connection
// failed. Attempts that were withdrawn, or turned away for load, are not judged.
func (e *Endpoint) Judge(now time.Duration, good bool) {
	e.count(now, good)
	e.success = e.rate()
	switch s := e.set; {
	case s == nil:
	case e.ejected && now < e.until: // started before
	case e.ejected && good:
		s.restore(now, e)
	case e.ejected:
		s.Ejections[e.reason]++
		e.sentence(now, s.Outlier.Base)
	case !good:
		if why, ok := e.fails(&s.Outlier); ok {
			s.eject(now, e, why)
		}
	}
}

// TimedOut judges an attempt whose deadline has passed, before its Dropped: bad
// if the endpoint has been silent for as long as it would be ejected. Any less
// silence is a stall, and any answer means that it is merely slow.
func (e *Endpoint) TimedOut(now time.Duration) {
	if e.set != nil && e.Silent(now) >= max(e.set.Outlier.Base, 1) {
		e.Judge(now, false)
	}
}

// fails tells which criterion the endpoint does not meet.
func (e *Endpoint) fails(o *Outlier) (why Reason, ok bool) {
	if o.Consecutive > 0 && e.failures >= o.Consecutive {
		return ByConsecutive, true
	}
	good, bad := e.totals()
	return BySuccessRate, good+bad >= recordEnough && good < o.SuccessRate*(good+bad)
}

// Ejected tells whether the endpoint is ejected, and why. It is until it has
// served a probe.
func (e *Endpoint) Ejected() (why Reason, ok bool) { return e.reason, e.ejected }

// Ejections is how often the endpoint was ejected.
func (e *Endpoint) Ejections() uint64 { return e.sentences }

// probeDue tells whether an ejected endpoint may get a request: one when its time
// is over, and should that come to nothing, one for each ejection time.
func (e *Endpoint) probeDue(now time.Duration) bool {
	return e.ejected && !e.Unhealthy && now >= e.until && (e.started < e.until || now-e.started >= e.term)
}

// maxEjected is how many may be out at once.
func (s *Set) maxEjected() int {
	const slack = 1e-9 // for shares that binary fractions can't hold
	return int(s.Outlier.MaxEjected*float64(len(s.all.endpoints)) + slack)
}

func (s *Set) eject(now time.Duration, e *Endpoint, why Reason) {
	if s.ejected >= s.maxEjected() {
		return
	}
	if now-e.returned >= e.term {
		e.doublings = 0
	}
	s.ejected++
	s.Ejections[why]++
	e.ejected, e.reason = true, why
	e.sentence(now, s.Outlier.Base)
	s.trust()
}

// sentence begins an ejection, twice as long as the one before.
func (e *Endpoint) sentence(now, base time.Duration) {
	e.sentences++
	e.term = base << e.doublings
	e.doublings = min(e.doublings+1, maxDoublings)
	e.until = now + e.term
}

// restore takes an endpoint back, its record forgotten. It may have been restarted,
// so it starts as slowly as a new one.
func (s *Set) restore(now time.Duration, e *Endpoint) {
	s.ejected--
	e.ejected, e.returned = false, now
	e.failures, e.record, e.success = 0, [2]counts{}, 1
	s.trust()
	s.startSlowly(e)
	s.weigh()
}

// keepEjected counts the ejected ones of a new snapshot or limit, and takes back as
// many as are too many for it.
func (s *Set) keepEjected() {
	s.ejected = 0
	for _, e := range s.all.endpoints {
		switch {
		case !e.ejected:
		case s.ejected < s.maxEjected():
			s.ejected++
		default:
			e.ejected = false
		}
	}
}

// trust decides which endpoints picks avoid: the unhealthy and the ejected, or
// none when there are too many of them.
func (s *Set) trust() {
	bad := 0
	for _, e := range s.all.endpoints {
		if e.Unhealthy || e.ejected {
			bad++
		}
	}
	n := len(s.all.endpoints)
	s.panics = bad > 0 && (bad == n || s.Panic > 0 && float64(bad) > s.Panic*float64(n))
	for _, e := range s.all.endpoints {
		e.avoided = (e.Unhealthy || e.ejected) && !s.panics
	}
}

// review lets records grow old, so that an endpoint that nobody picked for its
// failures is picked again, and compares latencies.
func (s *Set) review(now time.Duration) {
	if now < s.reviewAt {
		return
	}
	s.reviewAt = now + reviewEvery
	for _, e := range s.all.endpoints {
		e.half(now)
		e.success = e.rate()
	}
	if s.Outlier.Latency > 0 {
		s.compareLatencies(now)
	}
}

// compareLatencies ejects those that have been slow for the whole of their record,
// the slowest first.
func (s *Set) compareLatencies(now time.Duration) {
	list := s.measured[:0]
	for _, e := range s.all.endpoints {
		if mean, ok := e.meanLatency(); ok && !e.ejected {
			list = append(list, measured{e, mean})
		}
	}
	slices.SortFunc(list, func(a, b measured) int { return cmp.Compare(a.mean, b.mean) })
	for i := len(list) - 1; i > 0; i-- {
		// The median of the others: of those below, if most are below.
		median := list[(len(list)-2)/2].mean
		if float64(list[i].mean) <= s.Outlier.Latency*float64(median) {
			return
		}
		s.eject(now, list[i].e, ByLatency)
	}
}

// measured is an endpoint with a mean latency.
type measured struct {
	e    *Endpoint
	mean time.Duration
}
