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

// ramps are the endpoints of a set whose weight grows.
type ramps struct {
	n  int           // endpoints
	at time.Duration // when weights grow next
}

// start lets endpoints start with a part of their weight, unless more than half of all
// would then be starting: the others could not carry the load. In the first snapshot all
// endpoints are new, so none starts slowly.
func (r *ramps) start(starting, all []*Endpoint, window time.Duration) {
	growing := len(starting)
	for _, e := range all {
		if e.ramp.part < 1 && !slices.Contains(starting, e) {
			growing++
		}
	}
	if window <= 0 || 2*growing > len(all) {
		return
	}
	for _, e := range starting {
		e.ramp = ramp{rampFrom, rampPending}
	}
}

// count counts the endpoints whose weight grows.
func (r *ramps) count(all []*Endpoint) {
	r.n = 0
	for _, e := range all {
		if e.ramp.part < 1 {
			r.n++
		}
	}
}

// grow lets weights grow if that is due, and reports whether it was.
func (r *ramps) grow(now time.Duration, all []*Endpoint, window time.Duration) bool {
	if now < r.at {
		return false
	}
	r.at = now + rampStep
	for _, e := range all {
		if e.ramp.part < 1 {
			e.ramp.grow(now, window)
		}
	}
	return true
}

func (s *Set) startSlowly(starting ...*Endpoint) {
	s.ramps.start(starting, s.all.endpoints, s.SlowStart)
}

func (s *Set) rampUp(now time.Duration) {
	if s.ramps.n > 0 && s.ramps.grow(now, s.all.endpoints, s.SlowStart) {
		s.weigh()
	}
}

// weigh computes the effective weights.
func (s *Set) weigh() {
	for _, e := range s.all.endpoints {
		e.effectiveWeight = e.Weight * e.ramp.part * e.utilization.share
	}
	s.ramps.count(s.all.endpoints)
	for _, g := range s.groups() {
		g.weigh()
		g.weighUsable()
	}
}
