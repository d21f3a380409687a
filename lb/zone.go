package lb

// TestConstants shows what happens at twice and at half of each.
var (
	// A request leaves the zone if the best endpoint there has spillFactor times the load per
	// weight of the best one elsewhere. A call across zones costs money and about half a
	// millisecond: a queue of twice the length justifies that, a slightly longer one does not.
	// In a zone with too few replicas these carry at most twice the load of others.
	spillFactor = 2.0

	// spillFloor is the load below which no request leaves the zone: twice a very small load
	// is still small.
	spillFloor = 4.0
)

// pickNear picks in the own zone, unless its best endpoint is much more loaded than the best
// one elsewhere.
func (s *Set) pickNear(q *Query, p purpose) *Endpoint {
	if !s.peers.zoned() {
		return s.choose(s.policy(), &s.peers.all, q, p)
	}
	if e := s.farProbe(q, p); e != nil {
		return e
	}
	near := s.choose(s.policy(), &s.peers.near, q, p)
	if near != nil && near.load(q.Now) < spillFloor {
		return near
	}
	far := s.choose(s.policy(), &s.peers.far, q, p)
	if near == nil || far != nil && near.perWeight(near.load(q.Now)) > spillFactor*far.perWeight(far.load(q.Now)) {
		return far
	}
	return near
}

// farProbe returns an ejected endpoint of another zone that is due for a probe and would be picked there,
// or nil. At low load no request would leave the zone to probe it.
func (s *Set) farProbe(q *Query, p purpose) *Endpoint {
	if p != forPrimary || len(q.Tried) > 0 {
		return nil
	}
	for _, e := range s.peers.farEjected {
		if !e.probeDue(q.Now) {
			continue
		}
		if picked := s.choose(s.policy(), &s.peers.far, q, p); picked != nil && picked.isEjected() {
			return picked
		}
		return nil
	}
	return nil
}
