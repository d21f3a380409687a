package lb

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb/outlier"
)

// zoned returns a set in zone a with the given number of endpoints per zone.
func zoned(p Policy, zones map[string]int) *Set {
	s := &Set{Zone: "a", Policy: p, Stall: Stall{After: 5 * ms, Probe: time.Hour}}
	var targets []Target
	for _, zone := range []string{"a", "b", ""} {
		for i := range zones[zone] {
			targets = append(targets, Target{Addr: zone + string(rune('0'+i)), Zone: zone})
		}
	}
	s.Update(targets)
	return s
}

func TestZone(t *testing.T) {
	load := func(s *Set, zone string, n int) {
		for _, e := range s.peers.all.endpoints {
			if e.Zone != zone {
				continue
			}
			for range n {
				e.Start(0)
			}
		}
	}
	for _, c := range []struct {
		name  string
		zones map[string]int
		do    func(s *Set)
		at    time.Duration
		want  string // zones that are picked
	}{
		{"idle", map[string]int{"a": 2, "b": 4}, func(*Set) {}, 0, "a"},
		{"below the floor", map[string]int{"a": 2, "b": 4}, func(s *Set) { load(s, "a", 3) }, 0, "a"},
		{"at the floor, the others idle", map[string]int{"a": 2, "b": 4}, func(s *Set) { load(s, "a", 4) }, 0, "b"},
		{"twice the others' load", map[string]int{"a": 2, "b": 4}, func(s *Set) {
			load(s, "a", 8)
			load(s, "b", 4)
		}, 0, "a"},
		{"more than that", map[string]int{"a": 2, "b": 4}, func(s *Set) {
			load(s, "a", 9)
			load(s, "b", 4)
		}, 0, "b"},
		{"stalled", map[string]int{"a": 2, "b": 4}, func(s *Set) { load(s, "a", 2) }, 5 * ms, "b"},
		{"all stalled", map[string]int{"a": 2, "b": 4}, func(s *Set) {
			load(s, "a", 2)
			load(s, "b", 2)
		}, 5 * ms, "a"},
		{"one elsewhere", map[string]int{"a": 2, "b": 1}, func(s *Set) { load(s, "a", 4) }, 0, "b"},
		{"loaded, and the others are stalled", map[string]int{"a": 2, "b": 2}, func(s *Set) {
			for _, e := range s.peers.near.endpoints {
				for range 5 {
					e.OpenStream(0)
				}
			}
			load(s, "b", 2)
		}, 5 * ms, "a"},
		{"none there", map[string]int{"b": 4}, func(*Set) {}, 0, "b"},
		{"unknown zones are elsewhere", map[string]int{"a": 1, "": 4}, func(*Set) {}, 0, "a"},
		{"many", map[string]int{"a": 20, "b": 20}, func(*Set) {}, 0, "a"},
		{"ejected", map[string]int{"a": 1, "b": 2}, func(s *Set) {
			s.Outlier = outlier.Rules{Consecutive: 1, Base: time.Hour, MaxEjected: 0.5}
			s.Retune()
			s.At(0).Judge(0, false)
		}, 0, "b"},
	} {
		for _, p := range policies {
			s := zoned(p, c.zones)
			c.do(s)
			rnd := rand.NewPCG(1, 2)
			for range 100 {
				if e := s.Pick(Query{Now: c.at, Rand: rnd}); e.Zone != c.want {
					t.Fatalf("%s, %T: picked %s", c.name, p, e.Addr)
				}
			}
		}
	}
}

// TestZoneRetries checks that the rest of the own zone is tried first, then the others.
func TestZoneRetries(t *testing.T) {
	s := zoned(nil, map[string]int{"a": 2, "b": 2})
	rnd := rand.NewPCG(1, 2)
	var tried []*Endpoint
	zones := ""
	for range 4 {
		e := s.Pick(Query{Now: 0, Rand: rnd, Tried: tried})
		tried = append(tried, e)
		zones += e.Zone
	}
	if zones != "aabb" || s.Pick(Query{Now: 0, Rand: rnd, Tried: tried}) != nil {
		t.Errorf("tried in the zones %s", zones)
	}
}

// TestZoneHedges checks that hedges go to the least pending of all zones.
func TestZoneHedges(t *testing.T) {
	s := zoned(nil, map[string]int{"a": 2, "b": 2})
	s.Lookup("a1").Start(0)
	got := map[string]bool{}
	for range 100 {
		got[s.PickHedge(Query{Now: 0, Rand: rand.NewPCG(1, uint64(len(got))), Tried: []*Endpoint{s.Lookup("a0")}}, false).Zone] = true
	}
	if got["a"] || !got["b"] {
		t.Errorf("hedges in the zones %v", got)
	}
}

// TestPassedOverInZone checks that a pick in another zone counts, also if the own zone has one endpoint.
func TestPassedOverInZone(t *testing.T) {
	s := zoned(ConsistentHash{}, map[string]int{"a": 1, "b": 2})
	for _, e := range s.peers.near.endpoints {
		e.Start(0)
		e.Start(0)
	}
	if e := s.Pick(Query{Now: 5 * ms, Rand: rand.NewPCG(1, 2)}); e == nil || e.Zone != "b" || s.PassedOver != 1 {
		t.Errorf("picked %v, passed over %d times", e, s.PassedOver)
	}
}
