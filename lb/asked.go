package lb

import (
	"slices"
	"time"

	"github.com/remora-proxy/remora/lb/log2"
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
	s.refresh(now)
	if len(s.zones.near.endpoints) > 0 || s.ejections.panicking {
		return false
	}
	if s.ejections.n > 0 {
		for _, e := range s.all.endpoints {
			if e.probeDue(now) {
				return false
			}
		}
	}
	return true
}

// MayPick reports whether Pick could return e before it looks for a last resort.
func (s *Set) MayPick(q *Query, e *Endpoint) bool {
	v := View{Query: *q, set: s, group: &s.all}
	return e.set == s && v.Eligible(e)
}

// Sample fills into with different endpoints that Pick could return, drawn by weight. It returns the endpoints that it has
// found.
func (s *Set) Sample(q *Query, into []*Endpoint) []*Endpoint {
	v, found := View{Query: *q, set: s, group: &s.all}, into[:0]
	if s.Len() <= len(into) {
		for _, e := range s.all.endpoints {
			if v.Eligible(e) {
				found = append(found, e)
			}
		}
		return found
	}
	for range drawTries * len(into) {
		if e := v.Draw(); v.Eligible(e) && !slices.Contains(found, e) {
			if found = append(found, e); len(found) == len(into) {
				break
			}
		}
	}
	return found
}

// Traffic returns what the set knows of the load of its endpoints, for the decision whether to send probes.
func (s *Set) Traffic() probe.Traffic {
	t := probe.Traffic{Endpoints: len(s.all.endpoints), Known: s.reports.n > 0}
	if t.Known {
		weight := 0.0
		for _, e := range s.all.endpoints {
			weight += e.Weight
		}
		t.Others = s.reports.others / float64(s.reports.n) * weight / float64(t.Endpoints)
	}
	if s.pace.samples > 0 {
		t.Latency = time.Duration(log2.Exp(s.pace.mean))
	}
	return t
}

// Answer returns what the load that e has answered to a probe means for picks.
func (e *Endpoint) Answer(now time.Duration, l Load) probe.Answer[*Endpoint] {
	return probe.Answer[*Endpoint]{
		From: e, Pending: float64(l.Pending) + e.excess.at(now), Weight: e.effectiveWeight * e.discount,
		Latency: l.Latency, At: now,
	}
}
