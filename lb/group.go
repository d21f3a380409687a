package lb

import "slices"

// groups are the groups that picks choose from: all endpoints of a set, and those by zone. near and far are
// empty if the own zone is unknown, or if it has none or all of the endpoints.
type groups struct {
	all, near, far group

	farEjected []*Endpoint // of far; none while the set panics
	virtual    float64     // virtual time of WeightedRoundRobin
}

// form makes the groups of these endpoints. own is the zone of this process.
func (s *groups) form(list []*Endpoint, own string) {
	*s = groups{all: newGroup(list), virtual: s.virtual}
	if own == "" {
		return
	}
	var near, far []*Endpoint
	for _, e := range list {
		if e.Zone == own {
			near = append(near, e)
		} else {
			far = append(far, e)
		}
	}
	if len(near) > 0 && len(far) > 0 {
		s.near, s.far = newGroup(near), newGroup(far)
	}
}

// zoned reports whether there are groups by zone.
func (s *groups) zoned() bool { return len(s.near.endpoints) > 0 }

func (s *groups) each() [3]*group { return [...]*group{&s.all, &s.near, &s.far} }

// weigh computes the effective weights after a change of what they are made of.
func (s *groups) weigh() {
	for _, e := range s.all.endpoints {
		e.effectiveWeight = e.Weight * e.ramp.part * e.utilization.share
	}
	for _, g := range s.each() {
		g.weigh()
		g.weighUsable()
	}
}

// updateAvoided follows a change of which endpoints are ejected or avoided.
func (s *groups) updateAvoided(panicking bool) {
	s.farEjected = slices.DeleteFunc(slices.Clone(s.far.endpoints), func(e *Endpoint) bool { return !e.isEjected() || panicking })
	for _, g := range s.each() {
		g.weighUsable()
	}
}

// group is endpoints that a pick chooses from.
type group struct {
	endpoints []*Endpoint
	sums      []float64 // running sums of their weights
	even      bool      // all have the same weight
	turns     turns
	ring      *ring   // nil without a keyed policy, and if no pick chooses from the group
	usable    float64 // sum of the weights of endpoints that are not avoided
}

func newGroup(endpoints []*Endpoint) group {
	return group{
		endpoints: endpoints,
		sums:      make([]float64, len(endpoints)),
		turns:     turns{order: make([]*Endpoint, 0, len(endpoints))},
	}
}

func (g *group) weigh() {
	sum := 0.0
	g.even = true
	for i, e := range g.endpoints {
		sum += e.effectiveWeight
		g.even = g.even && e.effectiveWeight == g.endpoints[0].effectiveWeight
		g.sums[i] = sum
	}
}

// weighUsable computes usable after a change of weights, or of which endpoints are avoided.
func (g *group) weighUsable() {
	g.usable = 0
	for _, e := range g.endpoints {
		if !e.avoided {
			g.usable += e.effectiveWeight
		}
	}
}

// locate returns the endpoint whose interval of the sum of weights contains x, in [0, 1).
func (g *group) locate(x float64) *Endpoint {
	last := len(g.sums) - 1
	if g.even {
		return g.endpoints[min(int(x*float64(last+1)), last)]
	}
	i, exact := slices.BinarySearch(g.sums, x*g.sums[last])
	if exact {
		i++ // the sums are the exclusive upper ends
	}
	return g.endpoints[min(i, last)]
}
