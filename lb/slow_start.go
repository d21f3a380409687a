package lb

import (
	"slices"
	"time"
)

const (
	// rampFrom is the share of its weight with which an endpoint starts: enough to warm up,
	// and to notice failures.
	rampFrom = 0.1

	rampStep = 100 * time.Millisecond // how often growing weights are recomputed

	// rampPending marks a ramp that starts with the next pick: Update does not know the time.
	rampPending = time.Duration(-1)
)

// ramp is how much of its weight an endpoint has reached in slow start.
type ramp struct {
	part  float64
	since time.Duration
}

func (r *ramp) grow(now, window time.Duration) {
	if window <= 0 { // turned off during the ramp: 0/0 would become the weight
		r.part = 1
		return
	}
	if r.since == rampPending {
		r.since = now
	}
	grown := float64(now-r.since) / float64(window)
	r.part = min(1, rampFrom+(1-rampFrom)*grown)
}

// startSlowly lets endpoints start with a part of their weight, unless more than half of the
// set would then be starting: the others could not carry the load. In the first snapshot all
// endpoints are new, so none starts slowly.
func (s *Set) startSlowly(starting ...*Endpoint) {
	growing := len(starting)
	for _, e := range s.all.endpoints {
		if e.ramp.part < 1 && !slices.Contains(starting, e) {
			growing++
		}
	}
	if s.SlowStart <= 0 || 2*growing > len(s.all.endpoints) {
		return
	}
	for _, e := range starting {
		e.ramp = ramp{rampFrom, rampPending}
	}
}

func (s *Set) rampUp(now time.Duration) {
	if s.ramping == 0 || now < s.rampAt {
		return
	}
	s.rampAt = now + rampStep
	for _, e := range s.all.endpoints {
		if e.ramp.part < 1 {
			e.ramp.grow(now, s.SlowStart)
		}
	}
	s.weigh()
}

// weigh computes the effective weights, and counts the endpoints that are starting.
func (s *Set) weigh() {
	s.ramping = 0
	for _, e := range s.all.endpoints {
		e.effectiveWeight = e.Weight * e.ramp.part * e.utilization.share
		if e.ramp.part < 1 {
			s.ramping++
		}
	}
	for _, g := range s.groups() {
		g.weigh()
		g.weighUsable()
	}
}
