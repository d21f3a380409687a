package lb

import (
	"slices"
	"time"
)

// Policy chooses one endpoint among those that are eligible.
type Policy interface {
	// Choose returns an eligible endpoint of v, or nil when there is none. v
	// is valid during the call.
	Choose(v *View) *Endpoint
}

// purpose is what an endpoint is picked for.
type purpose uint8

const (
	forPrimary   purpose = iota // a primary or retry: healthy, and not stalled or due for a probe
	forHedge                    // a hedge: healthy, neither stalled nor busy
	despiteStall                // a primary or retry, the other healthy ones being stalled
	lastResort                  // a primary or retry, the others being unhealthy
)

// View is one pick's view of a Set.
type View struct {
	Now  time.Duration
	Rand Rand

	set     *Set
	tried   []*Endpoint
	purpose purpose
}

// Len is the number of endpoints, eligible or not.
func (v *View) Len() int { return len(v.set.endpoints) }

// At returns the i-th endpoint.
func (v *View) At(i int) *Endpoint { return v.set.endpoints[i] }

// Eligible tells whether e may be picked.
func (v *View) Eligible(e *Endpoint) bool {
	if e.avoided && v.purpose != lastResort || slices.Contains(v.tried, e) {
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

// Score is e's load per weight: own pending and what others are reported to have.
func (v *View) Score(e *Endpoint) float64 { return e.score(v.Now) }

// Draw returns an endpoint, eligible or not, at random in proportion to weight.
// There must be one.
func (v *View) Draw() *Endpoint {
	sums := v.set.weights
	x := v.float() * sums[len(sums)-1]
	i, exact := slices.BinarySearch(sums, x)
	if exact {
		i++ // the sums are the exclusive upper ends
	}
	return v.set.endpoints[min(i, len(sums)-1)]
}

// float is uniform in [0, 1).
func (v *View) float() float64 { return float64(v.Rand.Uint64()>>11) / (1 << 53) }
