package lb

import "time"

// Policy chooses one endpoint among those that are eligible. One value may serve
// many sets: what a policy has to remember is kept with the endpoints.
type Policy interface {
	// Choose returns an eligible endpoint of v, or nil when there is none. v
	// is valid during the call.
	Choose(v *View) *Endpoint
}

// drawTries is how often a policy draws in vain before it looks at all.
const drawTries = 8

// purpose is what an endpoint is picked for.
type purpose uint8

const (
	forPrimary   purpose = iota // a primary or retry: not avoided, and not stalled, or due for a probe
	forHedge                    // a hedge: not avoided, neither stalled nor busy
	despiteStall                // a primary or retry, the others that are not avoided being stalled
	lastResort                  // a primary or retry, the others being unhealthy or ejected
)

// View is one pick's view of a Set.
type View struct {
	Now  time.Duration
	Rand Rand

	set     *Set
	group   *group
	tried   []*Endpoint
	purpose purpose
}

// Len is the number of endpoints, eligible or not.
func (v *View) Len() int { return len(v.group.endpoints) }

// At returns the i-th endpoint.
func (v *View) At(i int) *Endpoint { return v.group.endpoints[i] }

// wasTried goes by address: an endpoint that left the registry and came back while
// a request was out is another Endpoint, and yet the replica that has the request.
func (v *View) wasTried(e *Endpoint) bool {
	for _, t := range v.tried {
		if t != nil && t.Addr == e.Addr {
			return true
		}
	}
	return false
}

// Eligible tells whether e may be picked.
func (v *View) Eligible(e *Endpoint) bool {
	if e.avoided && !v.despiteAvoided(e) || v.wasTried(e) {
		return false
	}
	stall := &v.set.Stall
	switch v.purpose {
	case forPrimary:
		return !e.Stalled(v.Now, stall.After) || v.Now-e.started >= max(stall.Probe, 1)
	case forHedge:
		return !e.Stalled(v.Now, stall.After) && !e.Busy(v.Now)
	}
	return true
}

// despiteAvoided tells whether e, which is unhealthy or ejected, may be picked
// all the same.
func (v *View) despiteAvoided(e *Endpoint) bool {
	return v.purpose == lastResort || v.probes(e)
}

// probes tells whether e, which is ejected, is to be tried now. A retry tries none:
// where many were ejected at once, all that a request has could be spent on them.
func (v *View) probes(e *Endpoint) bool {
	return v.purpose == forPrimary && len(v.tried) == 0 && e.probeDue(v.Now)
}

// Score is what LeastPending compares: the load per weight, scaled by what e can
// carry.
func (v *View) Score(e *Endpoint) float64 { return e.score(v.Now) }

// Draw returns an endpoint, eligible or not, at random in proportion to weight.
// There must be one.
func (v *View) Draw() *Endpoint { return v.group.at(v.float()) }

// drawEligible draws until it has an eligible endpoint other than not, but gives
// up after drawTries.
func (v *View) drawEligible(not *Endpoint) *Endpoint {
	for range drawTries {
		if e := v.Draw(); e != not && v.Eligible(e) {
			return e
		}
	}
	return nil
}

// drawOfEligible looks at all endpoints and returns an eligible one at random, in
// proportion to weight, or nil.
func (v *View) drawOfEligible() *Endpoint {
	var l lot
	for _, e := range v.group.endpoints {
		if v.Eligible(e) {
			l.add(v, e)
		}
	}
	return l.drawn
}

// lot draws one of the endpoints added, in proportion to weight: each replaces
// the one drawn before with its share of the weight seen so far, and so ends up
// drawn with its share of all.
type lot struct {
	drawn *Endpoint
	sum   float64
}

func (l *lot) add(v *View, e *Endpoint) {
	l.sum += e.weight
	if l.drawn == nil || v.float()*l.sum < e.weight {
		l.drawn = e
	}
}

// float is uniform in [0, 1).
func (v *View) float() float64 { return float64(v.Rand.Uint64()>>11) / (1 << 53) }
