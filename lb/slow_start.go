package lb

import (
	"slices"
	"time"
)

const (
	// rampFrom is the part of its weight that a new endpoint starts with: enough
	// to warm up by, and to be seen failing.
	rampFrom = 0.1

	// rampStep is how often the weights are worked out while one grows.
	rampStep = 100 * time.Millisecond

	// rampUnseen is the start of a ramp that waits for the next pick: Update
	// does not know the time.
	rampUnseen = time.Duration(-1)
)

// startSlowly has endpoints begin with a part of their weight, unless more than
// half of the set would: the few others could not carry the rest. In the first
// snapshot all are new, so none does.
func (s *Set) startSlowly(starting ...*Endpoint) {
	growing := len(starting)
	for _, e := range s.all.endpoints {
		if e.ramp < 1 && !slices.Contains(starting, e) {
			growing++
		}
	}
	if s.SlowStart <= 0 || 2*growing > len(s.all.endpoints) {
		return
	}
	for _, e := range starting {
		e.ramp, e.rampSince = rampFrom, rampUnseen
	}
}

// rampUp lets the weights of new endpoints grow.
func (s *Set) rampUp(now time.Duration) {
	if s.ramping == 0 || now < s.rampAt {
		return
	}
	s.rampAt = now + rampStep
	for _, e := range s.all.endpoints {
		if e.ramp < 1 {
			e.rampUp(now, s.SlowStart)
		}
	}
	s.weigh()
}

func (e *Endpoint) rampUp(now, window time.Duration) {
	if window <= 0 { // turned off while the endpoint grows: 0/0 would be its weight for good
		e.ramp = 1
		return
	}
	if e.rampSince == rampUnseen {
		e.rampSince = now
	}
	grown := float64(now-e.rampSince) / float64(window)
	e.ramp = min(1, rampFrom+(1-rampFrom)*grown)
}

// weigh works out the weights that picks go by, and counts those that still grow.
func (s *Set) weigh() {
	s.ramping = 0
	for _, e := range s.all.endpoints {
		e.weight = e.Weight * e.ramp
		if e.ramp < 1 {
			s.ramping++
		}
	}
	for _, g := range [...]*group{&s.all, &s.near, &s.far} {
		g.weigh()
	}
}
