package lb

import (
	"math"
	"math/bits"
	"slices"
	"strings"
)

// ringPoints is the number of points of the endpoint with the most weight. The keys of an endpoint
// are its share give or take 9% then (one standard deviation). A ring of 100 endpoints takes 0.5 ms
// to make, one of 1,000 takes 5 ms (BenchmarkRing). A pick looks at ringPoints points at most. Maglev's table is more
// even and as fast, but if one of 1,000 endpoints leaves, seven times its keys move. TestConstants shows what happens at twice and at half.
var ringPoints = 128

const golden = 0x9e3779b97f4a7c15 // the increment of SplitMix64

// ConsistentHash picks by the key of the request: the requests with a key go to one endpoint, its
// owner, from all loops and processes. When an endpoint leaves, only its keys move. A new endpoint
// takes its share of the others' keys.
//
// The owner is passed over if it is not eligible, or has Set.Balance times its share of the load
// (Mirrokni, Thorup and Zadimoghaddam, "Consistent Hashing with Bounded Loads", 2018). Then the next
// endpoint on the ring gets the request, as it would if the owner had left. Retries and hedges go to
// the next endpoint, too. In slow start an endpoint has a growing part of its keys. A pick looks at
// ringPoints points at most. If none of them has an endpoint for the request, the endpoint with
// the least load gets it.
//
// The load is that of this loop alone: if each loop keeps to the bound, all together do.
type ConsistentHash struct{}

// Keyed reports whether p reads Query.Key.
func Keyed(p Policy) bool { return p == Policy(ConsistentHash{}) }

// Choose implements Policy.
func (ConsistentHash) Choose(v *View) *Endpoint {
	r := v.group.ring
	i := r.search(uint32(v.Key >> 32))
	for n := range ringPoints {
		if m := &r.members[r.points[i].owner]; r.accepts(v, m) {
			return m.Endpoint
		}
		if n == 0 && v.purpose == forPrimary && len(v.Tried) == 0 && v.group != &v.set.peers.far {
			v.set.PassedOver++
		}
		if i++; i == len(r.points) {
			i = 0
		}
	}
	return v.cheapestOfAll((*View).score)
}

// accepts reports whether m may have the request: it is eligible, the key is among those that it has
// already in slow start, and its load is below the bound. With the request that is no more than the
// bound, rounded up.
func (r *ring) accepts(v *View, m *member) bool {
	if !v.Eligible(m.Endpoint) {
		return false
	}
	if part := m.part * m.ramp.part; part < 1 && float64(mix(v.Key^m.seed)>>11)/(1<<53) >= part {
		return false
	}
	most := v.set.Balance * float64(r.load+1) * m.effectiveWeight
	return most == 0 || float64(m.pending+m.streams)*v.group.usable < most
}

// ring has points of its members on a circle of 32 bits. It depends on their addresses and weights
// alone, so that all loops and processes with the same endpoints have the same.
type ring struct {
	members []member
	points  []point
	starts  []uint32 // by the upper bits of a place: the first point that has these, or follows
	shift   int      // a place has so many lower bits
	load    int      // requests and streams at the members
}

// point is a point on a ring. The points are in the order of their places.
type point struct {
	place uint32
	owner uint32 // index of a member
}

type member struct {
	*Endpoint
	seed uint64
	part float64 // of the keys at its points: makes up for a whole number of points
}

// makeRings makes rings for the groups that keyed picks choose from. Without a keyed policy no endpoint
// is on a ring.
func (s *groups) makeRings(keyed bool) {
	switch {
	case !keyed:
		for _, e := range s.all.endpoints {
			e.ring = nil
		}
		for _, g := range s.each() {
			g.ring = nil
		}
	case s.zoned():
		s.near.makeRing()
		s.far.makeRing()
	case len(s.all.endpoints) > 0:
		s.all.makeRing()
	}
}

// makeRing makes a ring of the endpoints, or keeps the present one if exactly these endpoints are on it. An
// endpoint that is new, or has another weight, is on no ring.
func (g *group) makeRing() {
	r := g.endpoints[0].ring
	if r == nil || len(r.members) != len(g.endpoints) ||
		slices.ContainsFunc(g.endpoints, func(e *Endpoint) bool { return e.ring != r }) {
		r = newRing(g.endpoints)
	}
	g.ring = r
}

func newRing(endpoints []*Endpoint) *ring {
	r, most, points := &ring{members: make([]member, len(endpoints))}, 0.0, 0
	for i, e := range endpoints {
		r.members[i] = member{Endpoint: e, seed: hash("", e.Addr)}
		most = max(most, e.Weight)
		e.ring = r
		r.load += e.pending + e.streams
	}
	slices.SortFunc(r.members, func(a, b member) int { return strings.Compare(a.Addr, b.Addr) })
	counts := make([]int, len(endpoints))
	for i := range r.members {
		m := &r.members[i]
		exact := float64(ringPoints) * m.Weight / most
		counts[i] = int(math.Ceil(exact))
		m.part = exact / float64(counts[i])
		points += counts[i]
	}
	upper := bits.Len(uint(points-1)) - 2 // about four points for each: fewer starts fit the cache
	r.shift = 32 - upper
	r.points, r.starts = make([]point, points), make([]uint32, 1<<upper+1)
	r.eachPoint(counts, func(_ int, place uint32) { r.starts[place>>r.shift+1]++ })
	for i := range r.starts[1:] {
		r.starts[i+1] += r.starts[i]
	}
	ends := slices.Clone(r.starts)
	r.eachPoint(counts, func(owner int, place uint32) {
		start, i := r.starts[place>>r.shift], ends[place>>r.shift]
		ends[place>>r.shift]++
		for ; i > start && r.points[i-1].place > place; i-- {
			r.points[i] = r.points[i-1]
		}
		r.points[i] = point{place, uint32(owner)}
	})
	return r
}

// eachPoint calls f for each point of the members, in their order.
func (r *ring) eachPoint(counts []int, f func(owner int, place uint32)) {
	for i := range r.members {
		for n := range counts[i] {
			f(i, uint32(mix(r.members[i].seed+uint64(n)*golden)>>32))
		}
	}
}

// search returns the first point at place or after it.
func (r *ring) search(place uint32) int {
	i := int(r.starts[place>>r.shift])
	for i < len(r.points) && r.points[i].place < place {
		i++
	}
	if i == len(r.points) {
		return 0
	}
	return i
}
