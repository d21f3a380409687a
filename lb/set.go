package lb

import (
	"time"

	"github.com/remora-proxy/remora/lb/outlier"
)

// Target is an endpoint as the registry describes it.
type Target struct {
	Addr      string // host:port; its identity
	Host      string // name that Addr was resolved from, or ""
	Zone      string
	Weight    float64 // relative share of load; 0 or less means 1
	Unhealthy bool    // picked only when all others have been tried; see Set.Panics
}

// Rand is a source of uniform 64-bit numbers; *rand.PCG of math/rand/v2 is one.
type Rand interface{ Uint64() uint64 }

// Stall says when a silent endpoint counts as stalled.
type Stall struct {
	// After is how long an endpoint with two or more pending attempts may be silent: the
	// larger of 3 medians and the hedge delay. 0 means that none is ever stalled.
	After time.Duration

	// Probe is how often a stalled endpoint may still be picked, at most: once per hedge delay,
	// and once per half of its silence, which grows. A response ends a stall anyway.
	Probe time.Duration
}

// Set holds the endpoints of a service on one loop, and picks an endpoint for each attempt. The zero value is an empty
// set that picks by least_pending, ejects no endpoint and knows no zones. After a change of any setting but Stall, the
// owner must call Retune. Zone may not change once the set has endpoints. A Set
// must not be copied.
type Set struct {
	Policy Policy // nil means LeastPending

	// Balance bounds the load of an endpoint under ConsistentHash, as a multiple of the mean. 0
	// means no bound.
	Balance float64

	// Zone is the zone of this process: picks stay there as long as the load allows. "" means
	// that zones are ignored.
	Zone string

	// SlowStart is how long the weight of an endpoint grows from a tenth to its full value,
	// after an ejection or if a later snapshot adds the endpoint. 0 means no slow start.
	SlowStart time.Duration

	Outlier outlier.Rules // which endpoints are ejected

	// PanicThreshold is a share of the endpoints. If more are unhealthy or ejected, none counts as
	// such: a check that fails for so many is more likely wrong itself. 0 means that all endpoints must be
	// unhealthy or ejected.
	PanicThreshold float64

	// Stall is set by the owner, from the service's slowest route: a silence that is unusual
	// for a fast route may be normal work for a slow one.
	Stall Stall

	Loops int // of this process that use the endpoints, see CountIn; 0 means one

	// PassedOver counts the picks of first attempts by ConsistentHash that did not go to the home of
	// the key. The owner of the Set reads it.
	PassedOver uint64

	peers  peers
	byAddr map[string]*Endpoint
	view   View // reused by every pick
}

// Update makes the set hold exactly these targets; of targets with the same address, the
// first. An endpoint whose address stays keeps its history and its Ext, and adopts the new
// host, zone, weight and health. The caller owns added and removed.
func (s *Set) Update(targets []Target) (added, removed []*Endpoint) {
	next := make(map[string]*Endpoint, len(targets))
	list := make([]*Endpoint, 0, len(targets))
	s.tune()
	for _, t := range targets {
		if next[t.Addr] != nil {
			continue
		}
		e := s.byAddr[t.Addr]
		if e == nil {
			e = newEndpoint(t.Addr, &s.peers)
			added = append(added, e)
		}
		if w := usableWeight(t.Weight); w != e.Weight {
			s.peers.reports.drop(&e.report) // it is per the old weight
			e.Weight, e.ring = w, nil
		}
		e.Host, e.Zone, e.Unhealthy = t.Host, t.Zone, t.Unhealthy
		e.index = len(list)
		next[t.Addr] = e
		list = append(list, e)
	}
	for _, e := range s.peers.all.endpoints {
		if next[e.Addr] == nil {
			s.peers.reports.drop(&e.report)
			e.peers, e.ring, e.excess = nil, nil, excess{}
			removed = append(removed, e)
		}
	}
	s.byAddr = next
	s.peers.hold(list, added, s.Zone)
	s.peers.makeRings(Keyed(s.Policy))
	return added, removed
}

// Retune applies changed settings: which endpoints are ejected, whether the set panics, and
// whether it needs rings.
func (s *Set) Retune() {
	s.tune()
	s.peers.makeRings(Keyed(s.Policy))
	s.peers.health.limit(&s.peers.groups)
}

// tune hands settings to the parts that go by them.
func (s *Set) tune() {
	p := &s.peers
	p.health.rules, p.health.panicThreshold = &s.Outlier, s.PanicThreshold
	p.ramps.window, p.loops = s.SlowStart, s.Loops
}

// usableWeight returns a positive, finite weight for that of a target, which may even be NaN.
func usableWeight(w float64) float64 {
	if w > 0 {
		return min(w, maxWeight)
	}
	return 1
}

const maxWeight = 1e6

// Len returns the number of endpoints.
func (s *Set) Len() int { return len(s.peers.all.endpoints) }

// At returns the i-th endpoint, in the order of the last Update.
func (s *Set) At(i int) *Endpoint { return s.peers.all.endpoints[i] }

// Lookup returns the endpoint with this address, or nil.
func (s *Set) Lookup(addr string) *Endpoint { return s.byAddr[addr] }

// Stalled reports whether e counts as stalled now.
func (s *Set) Stalled(now time.Duration, e *Endpoint) bool {
	return e.Stalled(now, s.Stall.After)
}

// Panics reports whether so many endpoints are unhealthy or ejected that none counts as such.
func (s *Set) Panics() bool { return s.peers.health.panicking }

// Ejections returns how often an endpoint was ejected, by reason.
func (s *Set) Ejections() [outlier.Reasons]uint64 { return s.peers.health.counts }

// Usable reports whether e may serve the requests that are pinned to e: e is in the set, and neither
// unhealthy nor ejected, or the set panics. An endpoint that is only slow, stalled or loaded gets its
// pinned requests: the others do not know what the endpoint keeps for its clients.
func (s *Set) Usable(e *Endpoint) bool { return e.peers == &s.peers && !e.avoided }

// Pick returns the endpoint for a primary attempt or a retry, or nil if all were tried. It never
// returns an endpoint of Tried. It returns a stalled endpoint only if the request is pinned to the
// endpoint, as a probe, or if all other endpoints are unhealthy or ejected. Unhealthy and ejected
// endpoints come last. Pick counts nothing: the caller must call Start when it hands the attempt over.
func (s *Set) Pick(q Query) *Endpoint {
	s.peers.refresh(q.Now)
	if q.Pin != nil && s.Usable(q.Pin) && !q.wasTried(q.Pin) {
		return q.Pin
	}
	for _, p := range [...]purpose{forPrimary, despiteGap, despiteStall, lastResort} {
		if e := s.pickNear(&q, p); e != nil {
			return e
		}
	}
	return nil
}

// HasRoom reports whether Pick would find an endpoint that was not tried and has, as far as is known,
// room for a request.
func (s *Set) HasRoom(q Query) bool {
	v := View{Query: q, set: s, group: &s.peers.all, purpose: forPrimary}
	for _, e := range s.peers.all.endpoints {
		if v.Eligible(e) {
			return true
		}
	}
	return false
}

// PickHedge returns the endpoint for a hedge, or nil: of the endpoints with spare capacity that are
// untried, not stalled, healthy and not ejected, the one with the least pending requests, whatever the
// policy and the zone. A policy that is Keyed picks the next endpoint of the key. stuck reports whether
// the request would wait for long without a hedge: then one request may wait before the hedge.
func (s *Set) PickHedge(q Query, stuck bool) *Endpoint {
	s.peers.refresh(q.Now)
	p := forHedge
	if stuck {
		p = forStuck
	}
	if Keyed(s.Policy) {
		return s.pickNear(&q, p)
	}
	return s.choose(LeastPending{}, &s.peers.all, &q, p)
}

func (s *Set) policy() Policy {
	if s.Policy == nil {
		return LeastPending{}
	}
	return s.Policy
}

func (s *Set) choose(by Policy, g *group, q *Query, p purpose) (e *Endpoint) {
	if len(g.endpoints) == 0 {
		return nil
	}
	s.view = View{Query: *q, set: s, group: g, purpose: p}
	if only := g.endpoints[0]; len(g.endpoints) > 1 || g != &s.peers.all {
		e = by.Choose(&s.view)
	} else if s.view.Eligible(only) { // the application of a provider's sidecar
		e = only
	}
	s.view = View{} // releases Tried, which the caller owns
	return e
}
