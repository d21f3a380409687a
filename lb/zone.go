package lb

import "time"

const (
	// spillFactor is how many times the load per weight of another zone's
	// endpoint the best one in the own zone must have for a request to leave it.
	// A call across zones costs money and half a millisecond or so: twice the
	// queue is worth that, a little more of it is not. In a zone with too few
	// replicas they carry twice what the others do, and no more.
	spillFactor = 2

	// spillFloor is the load below which none leaves: twice next to nothing is
	// no load yet.
	spillFloor = busyFloor
)

// splitZones forms the groups by zone. There are none where the own zone is
// unknown, or has none or all of the endpoints.
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

// pickNear picks in the own zone unless what is left there is loaded a good deal
// more than elsewhere.
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
