package lb

import (
	"cmp"
	"slices"
	"time"
)

// Outlier says when endpoints are ejected: not picked for a time. The zero value ejects none.
type Outlier struct {
	Consecutive int     // failures in a row; 0 means not used
	SuccessRate float64 // lowest allowed success rate; 0 means not used
	Latency     float64 // highest allowed mean latency, as a multiple of the others' median; 0 means not used

	// Base is the duration of the first ejection. Each further ejection lasts twice as long as the one
	// before, up to 64 times Base, unless the endpoint has served in between for as long as it was ejected.
	Base time.Duration

	MaxEjected float64 // share of the set that may be ejected at once
}

// Reason is why an endpoint was ejected: a small number, fit to index an array of counters.
type Reason uint8

// The reasons.
const (
	ByConsecutive Reason = iota
	BySuccessRate
	ByLatency

	Reasons = int(ByLatency) + 1 // number of reasons
)

// String returns the key of the reason's setting.
func (r Reason) String() string {
	return [Reasons]string{"consecutive", "success_rate", "latency"}[r]
}

const (
	// A record covers the last 5 to 10 s, and ejects from recordEnough attempts on. If an endpoint fails
	// one attempt in ten, more than half of 20 attempts fail with a probability below 1 in 100,000.
	recordHalf   = 5 * time.Second
	recordEnough = 20

	// prior is the number of good attempts that discount adds to each record: a single failure says
	// little.
	prior = 4

	maxDoublings = 6
	reviewEvery  = time.Second // how often old records expire and latencies are compared
)

// health is the outcome of an endpoint's attempts.
type health struct {
	failures int       // in a row
	record   [2]counts // of the current half of the window, and of the previous one
	halfAt   time.Duration

	ejected   bool
	reason    Reason
	until     time.Duration // when a probe is due
	term      time.Duration // duration of the last ejection
	doublings int
	returned  time.Duration
	ejections uint64
}

type counts struct {
	good, bad uint32
	declined  uint32        // good ones that were an error of 4xx
	refused   uint32        // neither good nor bad: the endpoint did no work
	answers   uint32        // responses with a latency
	latency   time.Duration // sum of these latencies
}

// half returns the half of the record that contains now.
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

// discount returns the cube of the share of good attempts; 1 if the record has no bad one. The
// share alone only makes up for failures that are quick. A failure also costs a retry: if one of
// three endpoints fails every fifth attempt, an equal part of the load takes 6.7% of retries, which
// a budget of 5% does not cover. By the cube it takes 4% (TestFlakyEndpoint).
func (h *health) discount() float64 {
	good, bad := h.totals()
	if bad == 0 {
		return 1
	}
	rate := (good + prior) / (good + bad + prior)
	return rate * rate * rate
}

func (h *health) totals() (good, bad float64) {
	return float64(h.record[0].good + h.record[1].good), float64(h.record[0].bad + h.record[1].bad)
}

// meanLatency returns the mean of the record; false if it has too few responses.
func (h *health) meanLatency() (mean time.Duration, ok bool) {
	n := h.record[0].answers + h.record[1].answers
	if n < recordEnough {
		return 0, false
	}
	return (h.record[0].latency + h.record[1].latency) / time.Duration(n), true
}

// Judge counts the outcome of an attempt: good if the application responded without a failure
// of its own, bad if it or the connection failed. Attempts that were cancelled or refused for
// load are not judged.
func (e *Endpoint) Judge(now time.Duration, good bool) {
	e.count(now, good)
	e.success = e.discount()
	switch s := e.set; {
	case s == nil:
	case e.ejected && now < e.until: // started before the ejection
	case e.ejected && good:
		s.restore(now, e)
	case e.ejected:
		s.Ejections[e.reason]++
		e.startEjection(now, s.Outlier.Base)
	case !good:
		if why, ok := e.violates(&s.Outlier); ok {
			s.eject(now, e, why)
		}
	}
}

// Streak returns how many attempts failed in a row, and how many of the last 5 to 10 s were good.
func (e *Endpoint) Streak(now time.Duration) (failed, good int) {
	e.half(now)
	recent, _ := e.totals()
	return e.failures, int(recent)
}

// TimedOut judges an attempt whose time is up, before its Dropped, and reports whether it was
// bad: the endpoint has been silent for the duration of an ejection. A shorter silence is a
// stall, and any response means that the endpoint is only slow.
func (e *Endpoint) TimedOut(now time.Duration) (bad bool) {
	bad = e.set != nil && e.Silent(now) >= max(e.set.Outlier.Base, 1)
	if bad {
		e.Judge(now, false)
	}
	return bad
}

func (e *Endpoint) violates(o *Outlier) (why Reason, ok bool) {
	if o.Consecutive > 0 && e.failures >= o.Consecutive {
		return ByConsecutive, true
	}
	good, bad := e.totals()
	return BySuccessRate, good+bad >= recordEnough && good < o.SuccessRate*(good+bad)
}

// Ejected reports whether the endpoint is ejected, until it has served a probe, and why.
func (e *Endpoint) Ejected() (why Reason, ok bool) { return e.reason, e.ejected }

// Ejections returns how often the endpoint was ejected.
func (e *Endpoint) Ejections() uint64 { return e.ejections }

// probeDue reports whether an ejected endpoint may get a request: one after the ejection time,
// and one more after each further ejection time without an outcome.
func (e *Endpoint) probeDue(now time.Duration) bool {
	return e.ejected && !e.Unhealthy && now >= e.until && (e.started < e.until || now-e.started >= e.term)
}

func (s *Set) maxEjected() int {
	const slack = 1e-9 // for shares that are not exact binary fractions
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
	e.startEjection(now, s.Outlier.Base)
	s.updateAvoided()
}

// startEjection doubles the duration each time.
func (e *Endpoint) startEjection(now, base time.Duration) {
	e.ejections++
	e.term = base << e.doublings
	e.doublings = min(e.doublings+1, maxDoublings)
	e.until = now + e.term
}

// restore ends the ejection of e. e may have been restarted, so its slow start begins again.
func (s *Set) restore(now time.Duration, e *Endpoint) {
	s.ejected--
	e.ejected, e.returned = false, now
	e.failures, e.record, e.success = 0, [2]counts{}, 1
	s.updateAvoided()
	s.startSlowly(e)
	s.weigh()
}

// keepEjected counts the ejected endpoints after a change of targets or limit, and restores
// those beyond the limit.
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

// updateAvoided makes picks avoid unhealthy and ejected endpoints, unless these are too many.
func (s *Set) updateAvoided() {
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
	s.far.ejected = slices.DeleteFunc(slices.Clone(s.far.endpoints), func(e *Endpoint) bool { return !e.ejected || s.panics })
	for _, g := range s.groups() {
		g.weighUsable()
	}
}

// review expires old records, so that an endpoint avoided for its failures is picked again
// once they are old, and compares latencies.
func (s *Set) review(now time.Duration) {
	if now < s.reviewAt {
		return
	}
	s.reviewAt = now + reviewEvery
	for _, e := range s.all.endpoints {
		e.half(now)
		e.success = e.discount()
	}
	for _, e := range s.all.endpoints {
		if e.excess > 0 {
			e.compare(now)
		}
		if e.phantomNow(now) == 0 {
			e.phantom = 0
		}
	}
	if s.utilized {
		s.compareUtilizations(now)
	}
	if s.Outlier.Latency > 0 {
		s.compareLatencies(now)
	}
}

// compareLatencies ejects the endpoints that were slow for their whole record, slowest first.
func (s *Set) compareLatencies(now time.Duration) {
	list := s.measured[:0]
	for _, e := range s.all.endpoints {
		if mean, ok := e.meanLatency(); ok && !e.ejected {
			list = append(list, measured{e, mean})
		}
	}
	slices.SortFunc(list, func(a, b measured) int { return cmp.Compare(a.mean, b.mean) })
	for i := len(list) - 1; i > 0; i-- {
		// The median of the others: of the faster ones, if these are most.
		median := list[(len(list)-2)/2].mean
		if float64(list[i].mean) <= s.Outlier.Latency*float64(median) {
			return
		}
		s.eject(now, list[i].e, ByLatency)
	}
}

type measured struct {
	e    *Endpoint
	mean time.Duration
}
