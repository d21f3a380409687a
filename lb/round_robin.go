package lb

// WeightedRoundRobin gives each endpoint turns in proportion to weight, spread in time as
// evenly as possible: weights 5, 1, 1 give a a b a c a a and not a a a a a b c. An endpoint
// that is not eligible in its turn misses it.
//
// It is earliest-deadline-first scheduling on virtual time, as in Envoy: an endpoint of weight
// w has a turn every 1/w. The first turn is at a random time before that, so that loops with
// the same snapshot do not pick in step. A pick costs O(log n); nginx visits all endpoints.
type WeightedRoundRobin struct{}

// Choose implements Policy.
func (WeightedRoundRobin) Choose(v *View) *Endpoint {
	t := &v.group.turns
	if len(t.order) == 0 {
		t.begin(v)
	}
	for range min(scanUpTo, len(t.order)) {
		if e := t.next(); v.Eligible(e) {
			return e
		}
	}
	return v.drawOfEligible()
}

// turns is a heap of endpoints by the time of their next turn, empty until the first turn.
type turns struct {
	order []*Endpoint
}

// begin orders the endpoints of the view. Those that had turns in an earlier snapshot keep
// their place. An endpoint whose next turn is more than two periods away, because its weight has
// grown, begins anew: others would get up to thousands of turns before its next one. By rounding, a turn may be
// slightly more than one period away.
//
// The virtual time restarts at 0. After years of turns of endpoints with little weight, the
// period of a heavy endpoint would be lost in rounding, and it would get all turns.
func (t *turns) begin(v *View) {
	for _, e := range v.set.peers.all.endpoints {
		e.nextTurn -= v.set.peers.virtual
	}
	v.set.peers.virtual = 0
	for _, e := range v.group.endpoints {
		if period := 1 / e.effectiveWeight; e.nextTurn <= 0 || e.nextTurn > 2*period {
			e.nextTurn = v.float() * period
		}
		t.order = append(t.order, e)
	}
	for i := len(t.order)/2 - 1; i >= 0; i-- {
		t.sink(i)
	}
}

// next returns the endpoint whose turn it is, and schedules its next turn.
func (t *turns) next() *Endpoint {
	e := t.order[0]
	e.peers.virtual = max(e.peers.virtual, e.nextTurn)
	e.nextTurn += 1 / e.effectiveWeight
	t.sink(0)
	return e
}

func (t *turns) sink(i int) {
	o := t.order
	for {
		first := i
		for _, child := range [...]int{2*i + 1, 2*i + 2} {
			if child < len(o) && o[child].nextTurn < o[first].nextTurn {
				first = child
			}
		}
		if first == i {
			return
		}
		o[i], o[first] = o[first], o[i]
		i = first
	}
}
