package lb

import "time"

const (
	// A request leaves the zone if the best endpoint there has spillFactor times the load per
	// weight of the best one elsewhere. A call across zones costs money and about half a
	// millisecond: a queue of twice the length justifies that, a slightly longer one does not.
	// In a zone with too few replicas these carry at most twice the load of others.
	spillFactor = 2

	// spillFloor is the load below which no request leaves the zone: twice a very small load
	// is still small.
	spillFloor = 4
)

// splitZones forms the groups by zone. There are none if the own zone is unknown, or if it has
// none or all of the endpoints.
func (s *Set) splitZones() {
	s.near, s.far = group{}, group{}
	if s.Zone == "" {
		return
	}
	var near, far []*Endpoint
	for _, e := range s.all.endpoints {
		if e.Zone == s.Zone {
			near = append(near, e)
		} else {
			far = append(far, e)
		}
	}
	if len(near) > 0 && len(far) > 0 {
		s.near, s.far = newGroup(near), newGroup(far)
	}
}

// pickNear picks in the own zone, unless its best endpoint is much more loaded than the best
// one elsewhere.
func (s *Set) pickNear(now time.Duration, rnd Rand, tried []*Endpoint, p purpose) *Endpoint {
	if len(s.near.endpoints) == 0 {
		return s.choose(s.policy(), &s.all, now, rnd, tried, p)
	}
	near := s.choose(s.policy(), &s.near, now, rnd, tried, p)
	if near != nil && near.load(now) < spillFloor {
		return near
	}
	far := s.choose(s.policy(), &s.far, now, rnd, tried, p)
	if near == nil || far != nil && near.perWeight(near.load(now)) > spillFactor*far.perWeight(far.load(now)) {
		return far
	}
	return near
}
