package lb

import (
	"slices"
	"time"
)

// Target is an endpoint as the registry has it.
type Target struct {
	Addr   string // host:port; its identity
	Zone   string
	Weight float64 // relative share of load; not above 0: 1

	// Unhealthy endpoints are picked when all others have been tried. Where
	// all are, the check is taken to be at fault and none counts as such.
	Unhealthy bool
}

// Rand is a source of uniform 64-bit numbers; *rand.PCG of math/rand/v2 is one.
type Rand interface{ Uint64() uint64 }

// Stall says what silence makes an endpoint suspect.
type Stall struct {
	// After is how long an endpoint with two or more pending may be silent:
	// the larger of 3 medians and the hedge delay. 0: stalls are not looked for.
	After time.Duration

	// Probe is how often a stalled endpoint may be picked all the same: once
	// per hedge delay.
	Probe time.Duration
}

// Set is the endpoints of one service on one loop. The zero value is an empty
// set that picks by least_pending. It must not be copied once it has endpoints.
type Set struct {
	// Policy chooses among the endpoints; nil: LeastPending.
	Policy Policy

	// Stall is kept up to date by the owner, from the service's slowest route:
	// what is silence for a fast one may be plain work for a slow one.
	Stall Stall

	endpoints []*Endpoint
	byAddr    map[string]*Endpoint
	weights   []float64 // running sums of the endpoints' weights

	reports   int     // endpoints whose report counts
	othersSum float64 // of their others
	expireAt  time.Duration

	view View // reused by every pick
}

// Update makes the set hold exactly these targets, the first of those with the
// same address. An endpoint whose address stays keeps its history and its Ext,
// and takes on the new zone, weight and health. added and removed are the
// caller's.
func (s *Set) Update(targets []Target) (added, removed []*Endpoint) {
	next := make(map[string]*Endpoint, len(targets))
	allUnhealthy := !slices.ContainsFunc(targets, func(t Target) bool { return !t.Unhealthy })
	list := make([]*Endpoint, 0, len(targets))
	for _, t := range targets {
		if next[t.Addr] != nil {
			continue
		}
		e := s.byAddr[t.Addr]
		if e == nil {
			e = &Endpoint{Addr: t.Addr, set: s}
			added = append(added, e)
		}
		if w := usableWeight(t.Weight); w != e.Weight {
			e.forget() // it was per the old weight
			e.Weight = w
		}
		e.Zone, e.Unhealthy, e.avoided = t.Zone, t.Unhealthy, t.Unhealthy && !allUnhealthy
		next[t.Addr] = e
		list = append(list, e)
	}
	for _, e := range s.endpoints {
		if next[e.Addr] == nil {
			e.forget()
			e.set = nil
			removed = append(removed, e)
		}
	}
	s.endpoints, s.byAddr = list, next
	s.weights = make([]float64, len(list))
	sum := 0.0
	for i, e := range list {
		sum += e.Weight
		s.weights[i] = sum
	}
	return added, removed
}

// usableWeight lets nothing but a positive, finite number through; NaN is not
// above 0 either.
func usableWeight(w float64) float64 {
	if w > 0 && w <= maxWeight {
		return w
	}
	if w > maxWeight {
		return maxWeight
	}
	return 1
}

const maxWeight = 1e6

// Len is the number of endpoints.
func (s *Set) Len() int { return len(s.endpoints) }

// At returns the i-th endpoint, in the order of the last Update.
func (s *Set) At(i int) *Endpoint { return s.endpoints[i] }

// Lookup returns the endpoint with this address, or nil.
func (s *Set) Lookup(addr string) *Endpoint { return s.byAddr[addr] }

// Stalled tells whether the set takes e for stalled now.
func (s *Set) Stalled(now time.Duration, e *Endpoint) bool {
	return e.Stalled(now, s.Stall.After)
}

// Pick returns the endpoint for a primary attempt or a retry: never one in
// tried; a stalled one only as its probe or when no other is left but unhealthy
// ones, and those last; nil when all have been tried. Whoever wants to try one again leaves it out of tried. It
// counts nothing: Started does, once the attempt is handed over.
func (s *Set) Pick(now time.Duration, rnd Rand, tried []*Endpoint) *Endpoint {
	for _, p := range [...]purpose{forPrimary, despiteStall, lastResort} {
		if e := s.pick(now, rnd, tried, p); e != nil {
			return e
		}
	}
	return nil
}

// PickHedge returns the endpoint for a hedge: never one in tried, nor one that
// is stalled, busy or unhealthy; nil when there is no other.
func (s *Set) PickHedge(now time.Duration, rnd Rand, tried []*Endpoint) *Endpoint {
	return s.pick(now, rnd, tried, forHedge)
}

func (s *Set) pick(now time.Duration, rnd Rand, tried []*Endpoint, p purpose) *Endpoint {
	s.expire(now)
	s.view = View{Now: now, Rand: rnd, set: s, tried: tried, purpose: p}
	policy := s.Policy
	if policy == nil {
		policy = LeastPending{}
	}
	e := policy.Choose(&s.view)
	s.view = View{} // tried is the caller's
	return e
}
