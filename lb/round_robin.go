package lb

// WeightedRoundRobin gives each endpoint its turns in proportion to weight, as
// evenly spread in time as can be: weights 5, 1, 1 make a a b a c a a and not
// a a a a a b c. An endpoint that is not eligible when its turn comes misses it.
//
// It is earliest-deadline-first scheduling on virtual time (as Envoy's): an
// endpoint of weight w has a turn every 1/w, the first at a random moment before,
// so that many loops with the same snapshot do not walk in step. A pick costs
// O(log n); the classic way (nginx's) looks at all.
type WeightedRoundRobin struct{}

// Choose implements Policy.
func (WeightedRoundRobin) Choose(v *View) *Endpoint {
	t := &v.group.turns
	if len(t.order) == 0 {
		t.begin(v)
	}
	for range min(drawTries, len(t.order)) {
		if e := t.next(); v.Eligible(e) {
			return e
		}
	}
	return v.drawOfEligible()
}

// turns is a heap of endpoints by the time of their next turn. It is empty until
// somebody asks for a turn.
type turns struct {
	order []*Endpoint
}

// begin orders the endpoints of the view. Those that had turns in an earlier
// snapshot keep their place, unless they have come to weigh so much more that others
// would have thousands of turns until then.
//
// The virtual time starts anew with it: after years of turns of endpoints that weigh
// little, the period of one that weighs much would be lost in rounding, and all turns
// would be its own.
func (t *turns) begin(v *View) {
	for _, e := range v.set.all.endpoints {
		e.turn -= v.set.virtual
	}
	v.set.virtual = 0
	for _, e := range v.group.endpoints {
		if period := 1 / e.weight; e.turn <= 0 || e.turn > period {
			e.turn = v.float() * period
		}
		t.order = append(t.order, e)
	}
	for i := len(t.order)/2 - 1; i >= 0; i-- {
		t.sink(i)
	}
}

// next returns whose turn it is and puts it behind by one period.
func (t *turns) next() *Endpoint {
	e := t.order[0]
	e.set.virtual = max(e.set.virtual, e.turn)
	e.turn += 1 / e.weight
	t.sink(0)
	return e
}

// sink moves the i-th down to where no one below has an earlier turn.
func (t *turns) sink(i int) {
	o := t.order
	for {
		first := i
		for _, child := range [...]int{2*i + 1, 2*i + 2} {
			if child < len(o) && o[child].turn < o[first].turn {
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
