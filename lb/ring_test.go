package lb

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestRing: the points of a ring are in the order of their places and, at one place, of the addresses of their owners. A key
// belongs to the first point at its place or after it, and after the last point to the first one. About four points share a
// start of the search.
func TestRing(t *testing.T) {
	for _, c := range []struct {
		n      int
		weight func(i int) float64
	}{{1, even}, {2, even}, {3, func(i int) float64 { return []float64{1, 1, 1e-6}[i] }}, {10, func(i int) float64 { return float64(1 + i%3) }}, {2000, even}} {
		r := hashed(numbered(c.n, c.weight)).peers.all.ring
		if c.n == 1 {
			s := hashed(numbered(1, even))
			r = newRing(s.peers.all.endpoints)
		}
		counts, want := make([]int, len(r.members)), []point(nil)
		for _, p := range r.points {
			counts[p.owner]++
		}
		r.eachPoint(counts, func(owner int, place uint32) { want = append(want, point{place, uint32(owner)}) })
		slices.SortFunc(want, func(a, b point) int { return cmp.Or(cmp.Compare(a.place, b.place), cmp.Compare(a.owner, b.owner)) })
		if !slices.Equal(r.points, want) {
			t.Errorf("%d endpoints: the points are out of order", c.n)
		}
		if each := float64(len(r.points)) / float64(len(r.starts)-1); each <= 2 || each > 4 {
			t.Errorf("%d endpoints: %v points for each start", c.n, each)
		}
		owner := func(place uint32) int {
			i, _ := slices.BinarySearchFunc(want, place, func(p point, place uint32) int { return cmp.Compare(p.place, place) })
			return i % len(want)
		}
		places := []uint32{0, 1<<32 - 1}
		for i := 0; i < len(want); i += 1 + len(want)/1000 {
			places = append(places, want[i].place-1, want[i].place, want[i].place+1)
		}
		for _, place := range places {
			if got := r.search(place); got != owner(place) {
				t.Fatalf("%d endpoints: place %d has point %d, want %d", c.n, place, got, owner(place))
			}
		}
	}
}

// TestRingEnd: the next endpoint of a key at the end of the ring is the first one of the ring.
func TestRingEnd(t *testing.T) {
	for n := range 50 {
		s := hashed(numbered(10+n, even))
		r := s.peers.all.ring
		last := r.points[len(r.points)-1]
		tried := r.members[last.owner].Endpoint
		want := r.members[r.points[slices.IndexFunc(r.points, func(p point) bool { return p.owner != last.owner })].owner].Endpoint
		if e := s.Pick(Query{Rand: rand.NewPCG(1, 2), Key: uint64(last.place) << 32, Tried: []*Endpoint{tried}}); e != want {
			t.Errorf("%d endpoints: picked %s after the last one, want %s", s.Len(), e.Addr, want.Addr)
		}
	}
}

// TestRingOfNone: a set without endpoints has no ring, and one whose endpoints are all in the own zone has one ring.
func TestRingOfNone(t *testing.T) {
	s := hashed(nil)
	if e := s.Pick(Query{Rand: rand.NewPCG(1, 2)}); e != nil || s.Panics() {
		t.Errorf("picked %v of none, panic %t", e, s.Panics())
	}
	if s := zoned(ConsistentHash{}, map[string]int{"a": 3}); s.peers.all.ring == nil || s.peers.near.ring != nil {
		t.Error("no ring of all, although all are in the own zone")
	}
}
