package lb

import "time"

// Target is an endpoint as the registry has it.
type Target struct {
	Addr   string // host:port; its identity
	Zone   string
	Weight float64 // relative share of load; not above 0: 1

	// Unhealthy endpoints are picked when all others have been tried. Where
	// too many are, none counts as such; see Set.Panic.
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
// set that picks by least_pending, ejects nobody and knows no zones. Whoever changes
// its settings once it has endpoints, but for Stall, calls Retune; Zone is not changed
// then, and the set must not be copied.
type Set struct {
	// Policy chooses among the endpoints; nil: LeastPending.
	Policy Policy

	// Zone is where this process runs: picks stay there as long as the load
	// allows. "": zones are not looked at.
	Zone string

	// SlowStart is how long the weight of an endpoint that a later snapshot
	// brings, or that is back from an ejection, grows from a tenth to all of it.
	// 0: at once.
	SlowStart time.Duration

	// Outlier says which endpoints are ejected.
	Outlier Outlier

	// Panic is the share of the endpoints, unhealthy and ejected ones together,
	// above which none counts as such: what finds fault with so many is more
	// likely at fault itself. 0: only where all are.
	Panic float64

	// Stall is kept up to date by the owner, from the service's slowest route:
	// what is silence for a fast one may be plain work for a slow one.
	Stall Stall

	// Ejections counts them by reason; the owner reads it.
	Ejections [Reasons]uint64

	all       group
	near, far group // by zone; empty where zones make no difference
	byAddr    map[string]*Endpoint

	reports   int     // endpoints whose report counts
	othersSum float64 // of their others
	expireAt  time.Duration

	pace pace // of all endpoints

	ramping int // endpoints whose weight still grows
	rampAt  time.Duration

	ejected  int
	panics   bool
	reviewAt time.Duration
	measured []measured // scratch of review

	virtual float64 // time of the turns of WeightedRoundRobin

	view View // reused by every pick
}

// Update makes the set hold exactly these targets, the first of those with the
// same address. An endpoint whose address stays keeps its history and its Ext,
// and takes on the new zone, weight and health. added and removed are the
// caller's.
func (s *Set) Update(targets []Target) (added, removed []*Endpoint) {
	next := make(map[string]*Endpoint, len(targets))
	list := make([]*Endpoint, 0, len(targets))
	for _, t := range targets {
		if next[t.Addr] != nil {
			continue
		}
		e := s.byAddr[t.Addr]
		if e == nil {
			e = newEndpoint(t.Addr, s)
			added = append(added, e)
		}
		if w := usableWeight(t.Weight); w != e.Weight {
			e.forget() // it was per the old weight
			e.Weight = w
		}
		e.Zone, e.Unhealthy = t.Zone, t.Unhealthy
		next[t.Addr] = e
		list = append(list, e)
	}
	for _, e := range s.all.endpoints {
		if next[e.Addr] == nil {
			e.forget()
			e.set = nil
			removed = append(removed, e)
		}
	}
	s.all, s.byAddr = newGroup(list), next
	s.measured = make([]measured, 0, len(list))
	s.splitZones()
	s.startSlowly(added...)
	s.weigh()
	s.keepEjected()
	s.trust()
	return added, removed
}

// Retune makes settings that have changed count for what was decided by the old ones:
// who is ejected, and whether so many are bad that none is.
func (s *Set) Retune() {
	s.keepEjected()
	s.trust()
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
func (s *Set) Len() int { return len(s.all.endpoints) }

// At returns the i-th endpoint, in the order of the last Update.
func (s *Set) At(i int) *Endpoint { return s.all.endpoints[i] }

// Lookup returns the endpoint with this address, or nil.
func (s *Set) Lookup(addr string) *Endpoint { return s.byAddr[addr] }

// Stalled tells whether the set takes e for stalled now.
func (s *Set) Stalled(now time.Duration, e *Endpoint) bool {
	return e.Stalled(now, s.Stall.After)
}

// Panics tells whether so many endpoints are unhealthy or ejected that none
// counts as such.
func (s *Set) Panics() bool { return s.panics }

// Pick returns the endpoint for a primary attempt or a retry: never one in
// tried; a stalled one only as its probe or when no other is left but unhealthy
// or ejected ones, and those last; nil when all have been tried. Whoever wants to
// try one again leaves it out of tried. It counts nothing: Started does, once the
// attempt is handed over.
func (s *Set) Pick(now time.Duration, rnd Rand, tried []*Endpoint) *Endpoint {
	s.refresh(now)
	for _, p := range [...]purpose{forPrimary, despiteStall, lastResort} {
		if e := s.pickNear(now, rnd, tried, p); e != nil {
			return e
		}
	}
	return nil
}

// PickHedge returns the endpoint for a hedge, whatever the policy and the zone
// the one with the least pending: never one in tried, nor one that is stalled,
// busy, unhealthy or ejected; nil when there is no other.
func (s *Set) PickHedge(now time.Duration, rnd Rand, tried []*Endpoint) *Endpoint {
	s.refresh(now)
	return s.choose(LeastPending{}, &s.all, now, rnd, tried, forHedge)
}

// refresh does what is due every now and then.
func (s *Set) refresh(now time.Duration) {
	s.expire(now)
	s.rampUp(now)
	s.review(now)
}

func (s *Set) policy() Policy {
	if s.Policy == nil {
		return LeastPending{}
	}
	return s.Policy
}

func (s *Set) choose(by Policy, g *group, now time.Duration, rnd Rand, tried []*Endpoint, p purpose) *Endpoint {
	if len(g.endpoints) == 0 {
		return nil
	}
	s.view = View{Now: now, Rand: rnd, set: s, group: g, tried: tried, purpose: p}
	e := by.Choose(&s.view)
	s.view = View{} // tried is the caller's
	return e
}
