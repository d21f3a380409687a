package lb

import "time"

// Policy chooses an eligible endpoint. Endpoints hold its state, so one may serve many sets. It is not asked
// about a set of one endpoint.
type Policy interface {
	// Choose returns an eligible endpoint of v, or nil if there is none. v is valid only
	// during the call.
	Choose(v *View) *Endpoint
}

type purpose uint8

const (
	forPrimary   purpose = iota // a primary or retry: not avoided, has room, and not stalled, or due for a probe
	forHedge                    // a hedge: not avoided, not stalled, and with spare capacity
	forStuck                    // a hedge of a stuck request: one may wait there before it
	despiteGap                  // a primary or retry; all others have no room, or are stalled
	despiteStall                // a primary or retry; all others that are not avoided are stalled
	lastResort                  // a primary or retry; all others are unhealthy or ejected
)

// Query is what a pick is asked for.
type Query struct {
	Now   time.Duration
	Rand  Rand
	Key   uint64      // hash of the request's key; only a policy that is Keyed reads it
	Tried []*Endpoint // the caller's; a nil one is skipped
	Pin   *Endpoint   // Pick prefers it, see Usable; nil means none
}

// View is one pick's view of a Set.
type View struct {
	Query
	set     *Set
	group   *group
	purpose purpose
}

// Len returns the number of endpoints, eligible or not.
func (v *View) Len() int { return len(v.group.endpoints) }

// wasTried compares addresses. An endpoint that left the registry and came back during a
// request is another Endpoint, but still the replica that has the request.
func (q *Query) wasTried(e *Endpoint) bool {
	for _, t := range q.Tried {
		if t != nil && t.Addr == e.Addr {
			return true
		}
	}
	return false
}

// Eligible reports whether e may be picked.
func (v *View) Eligible(e *Endpoint) bool {
	if e.avoided && !v.mayPickAvoided(e) || v.wasTried(e) {
		return false
	}
	stall := &v.set.Stall
	switch v.purpose {
	case forPrimary:
		if e.waits(v.Now, e.started) {
			return false
		}
		fallthrough
	case despiteGap:
		return !e.Stalled(v.Now, stall.After) || e.stallProbeDue(v.Now, stall.Probe)
	case forHedge:
		return !e.waits(v.Now, e.started) && !e.Stalled(v.Now, stall.After) && e.Spare(v.Now)
	case forStuck:
		return !e.waits(v.Now, e.started) && !e.Stalled(v.Now, stall.After) && e.hasRoom(v.Now, true)
	}
	return true
}

func (v *View) mayPickAvoided(e *Endpoint) bool {
	return v.purpose == lastResort || v.mayProbe(e)
}

// mayProbe reports whether e is ejected and due for a probe. A retry is never a probe: if many
// endpoints are ejected at once, a request could spend all its attempts on them.
func (v *View) mayProbe(e *Endpoint) bool {
	return v.purpose == forPrimary && len(v.Tried) == 0 && e.probeDue(v.Now)
}

// Draw returns a random endpoint, eligible or not, by weight. The view must not be empty.
func (v *View) Draw() *Endpoint { return v.group.locate(v.float()) }

// drawEligible draws an eligible endpoint other than not; nil if scanUpTo draws find none.
func (v *View) drawEligible(not *Endpoint) *Endpoint {
	for range scanUpTo {
		if e := v.Draw(); e != not && v.Eligible(e) {
			return e
		}
	}
	return nil
}

// drawOfEligible visits all endpoints and returns a random eligible one by weight, or nil.
func (v *View) drawOfEligible() *Endpoint {
	var l weightedDraw
	for _, e := range v.group.endpoints {
		if v.Eligible(e) {
			l.add(v, e)
		}
	}
	return l.drawn
}

// weightedDraw draws one of the added endpoints in proportion to weight: each added endpoint
// replaces the drawn one with its share of the weight so far as probability.
type weightedDraw struct {
	drawn *Endpoint
	sum   float64
}

func (l *weightedDraw) add(v *View, e *Endpoint) { l.addWith(v, e, e.effectiveWeight) }

func (l *weightedDraw) addWith(v *View, e *Endpoint, weight float64) {
	l.sum += weight
	if l.drawn == nil || v.float()*l.sum < weight {
		l.drawn = e
	}
}

// float returns a uniform number in [0, 1).
func (v *View) float() float64 { return float64(v.Rand.Uint64()>>11) / (1 << 53) }
