package lb

// ConsistentHash picks by the key of the request: the requests with a key go to one endpoint, its
// owner, from all loops and processes. When an endpoint leaves, only its keys move. When one comes,
// it takes its share of the others' keys.
//
// The owner is passed over if it is not eligible, or has Set.Balance times its share of the load
// (Mirrokni, Thorup and Zadimoghaddam, "Consistent Hashing with Bounded Loads", 2018). Then the next
// on the ring gets the request: the owner if the other were not there. Retries and hedges go there,
// too. In slow start an endpoint has a part of its keys, which grows. If no endpoint on the way may
// have the request, the one with the least load gets it.
//
// The load is that of this loop alone: if each loop keeps to the bound, all together do.
type ConsistentHash struct{}

// Keyed reports whether p reads Query.Key.
func Keyed(p Policy) bool { return p == Policy(ConsistentHash{}) }

// Choose implements Policy.
func (ConsistentHash) Choose(v *View) *Endpoint {
	r := v.group.ring
	i := r.search(uint32(v.Key >> 32))
	for range ringWalk {
		if m := &r.members[r.points[i].owner]; r.accepts(v, m) {
			return m.Endpoint
		}
		if i++; i == len(r.points) {
			i = 0
		}
	}
	return v.cheapestOfAll((*Endpoint).score)
}

// accepts reports whether m may have the request: it is eligible, the key is among those that it has
// already in slow start, and its load is below the bound. With the request that is no more than the
// bound, rounded up.
func (r *ring) accepts(v *View, m *member) bool {
	if !v.Eligible(m.Endpoint) {
		return false
	}
	if part := m.part * m.ramp; part < 1 && float64(mix(v.Key^m.seed)>>11)/(1<<53) >= part {
		return false
	}
	most := v.set.Balance * float64(r.load+1) * m.weight
	return most == 0 || float64(m.pending+m.streams)*v.group.usable < most
}
