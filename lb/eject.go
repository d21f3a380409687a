package lb

import (
	"slices"
	"time"

	"github.com/remora-proxy/remora/lb/outlier"
)

const reviewEvery = time.Second // how often old records expire and latencies are compared

func (e *Endpoint) isEjected() bool {
	_, ejected := e.Ejected()
	return ejected
}

// probeDue reports whether an ejected endpoint may get a request, as a probe.
func (e *Endpoint) probeDue(now time.Duration) bool {
	return e.ejection.ProbeDue(now, e.started) && !e.Unhealthy
}

func (s *Set) eject(now time.Duration, e *Endpoint, why outlier.Reason) {
	if s.ejected >= s.Outlier.Most(s.Len()) {
		return
	}
	s.ejected++
	s.Ejections[why]++
	e.ejection.Begin(now, s.Outlier.Base, why)
	s.updateAvoided()
}

// restore ends the ejection of e. e may have been restarted, so its slow start begins again.
func (s *Set) restore(now time.Duration, e *Endpoint) {
	s.ejected--
	e.ejection.End(now)
	e.record.Clear()
	e.discount = 1
	s.updateAvoided()
	s.startSlowly(e)
	s.weigh()
}

// limitEjections counts the ejected endpoints after a change of targets or limit. Those beyond the limit, the last
// of the set, are ejected no longer.
func (s *Set) limitEjections() {
	s.ejected = 0
	for _, e := range s.all.endpoints {
		switch {
		case !e.isEjected():
		case s.ejected < s.Outlier.Most(s.Len()):
			s.ejected++
		default:
			e.ejection.Cancel()
		}
	}
}

// updateAvoided makes picks avoid unhealthy and ejected endpoints, unless these are too many.
func (s *Set) updateAvoided() {
	bad := 0
	for _, e := range s.all.endpoints {
		if e.Unhealthy || e.isEjected() {
			bad++
		}
	}
	n := len(s.all.endpoints)
	s.panicking = bad > 0 && (bad == n || s.PanicThreshold > 0 && float64(bad) > s.PanicThreshold*float64(n))
	for _, e := range s.all.endpoints {
		e.avoided = (e.Unhealthy || e.isEjected()) && !s.panicking
	}
	s.farEjected = slices.DeleteFunc(slices.Clone(s.far.endpoints), func(e *Endpoint) bool { return !e.isEjected() || s.panicking })
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
		e.record.Expire(now)
		e.discount = e.record.Discount()
	}
	for _, e := range s.all.endpoints {
		if e.excess.share > 0 {
			s.compare(e, now)
		}
		if e.excess.at(now) == 0 {
			e.excess.load = 0
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
	means := s.means[:0]
	for i, e := range s.all.endpoints {
		if mean, ok := e.record.Mean(); ok && !e.isEjected() {
			means = append(means, outlier.Mean{Index: i, Latency: mean})
		}
	}
	for _, m := range slices.Backward(s.Outlier.Slow(means)) {
		s.eject(now, s.all.endpoints[m.Index], outlier.ByLatency)
	}
}
