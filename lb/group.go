package lb

import "slices"

// group is the endpoints that a pick chooses from: all of a set, its zone, or other zones.
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
