package lb

import (
	"slices"
	"time"
)

// TestConstants shows what happens at twice and at half of each.
var (
	// rampFrom is the share of its weight with which an endpoint starts: enough to warm up,
	// and to notice failures.
	rampFrom = 0.1

	rampStep = 100 * time.Millisecond // how often growing weights are recomputed
)

// rampPending marks a ramp that starts with the next pick: Update does not know the time.
const rampPending = time.Duration(-1)

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

// ramps let the weights of endpoints grow.
type ramps struct {
	window time.Duration // how long a weight grows; 0 means no slow start
	n      int           // endpoints whose weight grows
	at     time.Duration // when weights grow next
}

// start lets endpoints start with a part of their weight, unless more than half of all
// would then be starting: the others could not carry the load. In the first snapshot all
// endpoints are new, so none starts slowly.
func (r *ramps) start(starting, all []*Endpoint) {
	growing := len(starting)
	for _, e := range all {
		if e.ramp.part < 1 && !slices.Contains(starting, e) {
			growing++
		}
	}
	if r.window > 0 && 2*growing <= len(all) {
		for _, e := range starting {
			e.ramp = ramp{rampFrom, rampPending}
		}
	}
	r.count(all)
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

// due reports whether weights grow now.
func (r *ramps) due(now time.Duration) bool { return r.n > 0 && now >= r.at }

// grow lets weights grow.
func (r *ramps) grow(now time.Duration, all []*Endpoint) {
	r.at = now + rampStep
	for _, e := range all {
		if e.ramp.part < 1 {
			e.ramp.grow(now, r.window)
		}
	}
	r.count(all)
}
