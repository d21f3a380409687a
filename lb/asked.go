package lb

import (
	"slices"
	"time"

	"github.com/remora-proxy/remora/lb/probe"
)

// ComparesLoad reports whether p picks by load, so that answers to probes may take its place.
func ComparesLoad(p Policy) bool {
	switch p.(type) {
	case nil, LeastPending, PeakEWMA:
		return true
	}
	return false
}

// Askable reports whether a pick by answers to probes may take the place of Pick. It may not if zones, or an ejected
// endpoint that is due for a request, decide the pick.
func (s *Set) Askable(now time.Duration) bool {
	s.peers.refresh(now)
	if s.peers.zoned() || s.Panics() {
		return false
	}
	if s.peers.health.ejected > 0 {
		for _, e := range s.peers.all.endpoints {
			if e.probeDue(now) {
				return false
			}
		}
	}
	return true
}

// MayPick reports whether Pick could return e before it looks for a last resort.
func (s *Set) MayPick(q *Query, e *Endpoint) bool {
	v := View{Query: *q, set: s, group: &s.peers.all}
	return e.peers == &s.peers && v.Eligible(e)
}

// Sample fills into with different endpoints that Pick could return, drawn by weight. It returns the endpoints that it has
// found.
func (s *Set) Sample(q *Query, into []*Endpoint) []*Endpoint {
	v, found := View{Query: *q, set: s, group: &s.peers.all}, into[:0]
	if s.Len() <= len(into) {
		for _, e := range s.peers.all.endpoints {
			if v.Eligible(e) {
				found = append(found, e)
			}
		}
		return found
	}
	for range scanUpTo * len(into) {
		if e := v.Draw(); v.Eligible(e) && !slices.Contains(found, e) {
			if found = append(found, e); len(found) == len(into) {
				break
			}
		}
	}
	return found
}

// Traffic returns what the set knows of the load of its endpoints, for the decision whether to send probes.
func (s *Set) Traffic() probe.Traffic { return s.peers.traffic() }

// Answer returns what the load that e has answered to a probe means for picks.
func (e *Endpoint) Answer(now time.Duration, l Load) probe.Answer[*Endpoint] {
	return probe.Answer[*Endpoint]{
		From: e, Pending: float64(l.Pending) + e.excess.at(now), Weight: e.effectiveWeight * e.discount,
		Latency: l.Latency, At: now,
	}
}
