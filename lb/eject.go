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

// ejections counts the ejected endpoints of a set, and decides which endpoints picks avoid.
type ejections struct {
	n         int // endpoints that are ejected
	counts    [outlier.Reasons]uint64
	panicking bool           // so many endpoints are bad that none is avoided
	means     []outlier.Mean // scratch of slow
}

// begin ejects e, unless that would be too many of all endpoints. It reports whether e is ejected.
func (j *ejections) begin(now time.Duration, e *Endpoint, why outlier.Reason, rules *outlier.Rules, all int) bool {
	if j.n >= rules.Most(all) {
		return false
	}
	j.n++
	j.counts[why]++
	e.ejection.Begin(now, rules.Base, why)
	return true
}

// extend ejects e again, whose probe has failed.
func (j *ejections) extend(now time.Duration, e *Endpoint, why outlier.Reason, rules *outlier.Rules) {
	j.counts[why]++
	e.ejection.Extend(now, rules.Base)
}

// end ends the ejection of e, whose record begins anew.
func (j *ejections) end(now time.Duration, e *Endpoint) {
	j.n--
	e.ejection.End(now)
	e.record.Clear()
	e.discount = 1
}

// limit counts the ejected endpoints after a change of targets or rules. Those beyond the limit, the last
// of all, are ejected no longer.
func (j *ejections) limit(all []*Endpoint, rules *outlier.Rules) {
	j.n = 0
	for _, e := range all {
		switch {
		case !e.isEjected():
		case j.n < rules.Most(len(all)):
			j.n++
		default:
			e.ejection.Cancel()
		}
	}
}

// avoid makes picks avoid unhealthy and ejected endpoints, unless these are more than a share of all.
func (j *ejections) avoid(all []*Endpoint, share float64) {
	bad := 0
	for _, e := range all {
		if e.isBad() {
			bad++
		}
	}
	n := len(all)
	j.panicking = bad > 0 && (bad == n || share > 0 && float64(bad) > share*float64(n))
	for _, e := range all {
		e.avoided = e.isBad() && !j.panicking
	}
}

func (e *Endpoint) isBad() bool { return e.Unhealthy || e.isEjected() }

// slow returns the endpoints that were slow for their whole record, slowest last. The slice is used again.
func (j *ejections) slow(all []*Endpoint, rules *outlier.Rules) []outlier.Mean {
	means := j.means[:0]
	for i, e := range all {
		if mean, ok := e.record.Mean(); ok && !e.isEjected() {
			means = append(means, outlier.Mean{Index: i, Latency: mean})
		}
	}
	return rules.Slow(means)
}

func (s *Set) eject(now time.Duration, e *Endpoint, why outlier.Reason) {
	if s.ejections.begin(now, e, why, &s.Outlier, s.Len()) {
		s.updateAvoided()
	}
}

// restore ends the ejection of e. e may have been restarted, so its slow start begins again.
func (s *Set) restore(now time.Duration, e *Endpoint) {
	s.ejections.end(now, e)
	s.updateAvoided()
	s.startSlowly(e)
	s.weigh()
}

// updateAvoided decides anew which endpoints are avoided.
func (s *Set) updateAvoided() {
	s.ejections.avoid(s.all.endpoints, s.PanicThreshold)
	s.zones.updateEjected(s.ejections.panicking)
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
		for _, m := range slices.Backward(s.ejections.slow(s.all.endpoints, &s.Outlier)) {
			s.eject(now, s.all.endpoints[m.Index], outlier.ByLatency)
		}
	}
}
