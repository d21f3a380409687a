package lb

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb/outlier"
)

// hashed returns a set that picks by key, without a bound.
func hashed(targets []Target) *Set {
	s := &Set{Policy: ConsistentHash{}}
	s.Update(targets)
	return s
}

// owners returns the address that each of n keys goes to.
func owners(s *Set, n int) []string {
	out := make([]string, n)
	rnd := rand.NewPCG(1, 2)
	for i := range out {
		out[i] = s.Pick(Query{Rand: rnd, Key: mix(uint64(i))}).Addr
	}
	return out
}

const someKeys = 20_000

// TestConsistentHashMoves checks that when an endpoint leaves, only its keys move, which are hardly
// more than its share; and that they come back with it.
func TestConsistentHashMoves(t *testing.T) {
	targets := numbered(10, even)
	for i := range targets {
		s := hashed(targets)
		before := owners(s, someKeys)
		s.Update(slices.Delete(slices.Clone(targets), i, i+1))
		after := owners(s, someKeys)
		moved := 0
		for k := range before {
			if before[k] != after[k] {
				moved++
			}
			if before[k] != after[k] && before[k] != targets[i].Addr {
				t.Fatalf("a key moved from %s to %s when %s left", before[k], after[k], targets[i].Addr)
			}
		}
		if moved > someKeys*12/100 {
			t.Errorf("%d of %d keys moved when one of 10 left", moved, someKeys)
		}
		s.Update(targets)
		if !slices.Equal(owners(s, someKeys), before) {
			t.Error("a key has not come back with its endpoint")
		}
	}
}

// TestConsistentHashEven checks that endpoints have keys in proportion to weight.
func TestConsistentHashEven(t *testing.T) {
	for _, c := range []struct {
		n      int
		weight func(i int) float64
	}{
		{1, even}, {2, even}, {10, even}, {100, even}, {10, func(i int) float64 { return float64(1 + i%3) }},
		{20, func(i int) float64 { return []float64{1, 1000}[i%2] }}, {100, func(i int) float64 { return 0.001 }},
	} {
		s := hashed(numbered(c.n, c.weight))
		keys := 4000 * c.n
		counts := map[string]int{}
		for _, addr := range owners(s, keys) {
			counts[addr]++
		}
		total := s.peers.all.sums[c.n-1]
		for _, e := range s.peers.all.endpoints {
			want := float64(keys) * e.Weight / total
			if got := float64(counts[e.Addr]); math.Abs(got-want) > 0.25*want+5*math.Sqrt(want) {
				t.Errorf("%d endpoints: %s of weight %v has %v keys, want about %.0f", c.n, e.Addr, e.Weight, got, want)
			}
		}
	}
}

// TestConsistentHashAgrees checks that sets with the same endpoints have the same owners, whatever
// the order of the endpoints and what came before.
func TestConsistentHashAgrees(t *testing.T) {
	targets := numbered(30, func(i int) float64 { return float64(1 + i%4) })
	want := owners(hashed(targets), someKeys)
	rnd := rand.New(rand.NewPCG(1, 2))
	other := slices.Clone(targets)
	s := hashed(numbered(50, even))
	for range 5 {
		rnd.Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
		if s.Update(other); !slices.Equal(owners(s, someKeys), want) {
			t.Fatal("the same endpoints in another order have other keys")
		}
		ring := s.peers.all.ring
		if s.Update(targets); s.peers.all.ring != ring {
			t.Error("a snapshot of the same endpoints made a ring")
		}
		if s.Update(numbered(30, even)); s.peers.all.ring == ring || slices.Equal(owners(s, someKeys), want) {
			t.Error("other weights have changed nothing")
		}
		s.Update(targets)
		s.Update(other[:rnd.IntN(25)])
	}
	// Of so many points some are at the same place.
	many := numbered(2000, even)
	a := hashed(many).peers.all.ring
	slices.Reverse(many)
	b := hashed(many).peers.all.ring
	for i := range a.points {
		if p, q := a.members[a.points[i].owner].Addr, b.members[b.points[i].owner].Addr; p != q {
			t.Fatalf("point %d belongs to %s and %s", i, p, q)
		}
	}
	// A value of the past: other processes may run other releases.
	if got := fmt.Sprint(owners(hashed(numbered(100, even)), 8)); got != "[22 61 81 70 45 69 14 46]" {
		t.Errorf("the owners of the first keys are %s", got)
	}
}

// TestConsistentHashNext checks that a request whose owner can't have it goes to the owner that the
// key has without the first, whatever the reason; so do hedges and retries.
func TestConsistentHashNext(t *testing.T) {
	rnd := rand.NewPCG(1, 2)
	targets := numbered(10, even)
	for key := range uint64(300) {
		q := Query{Now: 10 * ms, Rand: rnd, Key: mix(key)}
		s := hashed(targets)
		owner := s.Pick(q)
		s.Update(slices.DeleteFunc(slices.Clone(targets), func(t Target) bool { return t.Addr == owner.Addr }))
		next := s.Pick(q).Addr
		for name, c := range map[string]struct {
			do     func(s *Set, e *Endpoint)
			tried  bool
			hedges bool
		}{
			"retry": {tried: true}, "hedge": {tried: true, hedges: true},
			"stalled": {do: func(s *Set, e *Endpoint) {
				s.Stall = Stall{After: ms, Probe: time.Hour}
				e.Start(0)
				e.Start(0)
			}},
			"ejected": {do: func(s *Set, e *Endpoint) { e.Judge(0, false) }},
			"unhealthy": {do: func(s *Set, e *Endpoint) {
				worse := slices.Clone(targets)
				worse[slices.IndexFunc(worse, func(t Target) bool { return t.Addr == e.Addr })].Unhealthy = true
				s.Update(worse)
			}},
			"full": {do: func(s *Set, e *Endpoint) {
				s.Balance = 1.25
				e.Start(0)
			}},
			"full of streams": {do: func(s *Set, e *Endpoint) {
				s.Balance = 1.25
				e.OpenStream(0)
			}},
		} {
			s := hashed(targets)
			s.Outlier = outlier.Rules{Consecutive: 1, Base: time.Hour, MaxEjected: 0.5}
			s.Retune()
			e, q := s.Lookup(owner.Addr), q
			if c.do != nil {
				c.do(s, e)
			}
			if c.tried {
				q.Tried = []*Endpoint{e}
			}
			got := s.Pick(q)
			if c.hedges {
				got = s.PickHedge(q, false)
			}
			if got.Addr != next {
				t.Fatalf("%s: picked %s, want %s after %s", name, got.Addr, next, owner.Addr)
			}
		}
	}
}

// TestConsistentHashFewLeft checks that the one endpoint of many that is left is found.
func TestConsistentHashFewLeft(t *testing.T) {
	for _, n := range []int{2, 10, 500} {
		s := hashed(numbered(n, even))
		s.Balance = 1.25
		for key := range uint64(50) {
			q := Query{Rand: rand.NewPCG(1, 2), Key: mix(key), Tried: s.peers.all.endpoints[1:]}
			if e := s.Pick(q); e != s.At(0) {
				t.Fatalf("%d endpoints: picked %v", n, e)
			}
			q.Tried = s.peers.all.endpoints
			if e := s.PickHedge(q, false); e != nil {
				t.Fatalf("%d endpoints: all were tried, and a hedge went to %s", n, e.Addr)
			}
		}
	}
}

// TestConsistentHashSlowStart checks that an endpoint in slow start has a part of its keys, which
// grows: no key goes there and back.
func TestConsistentHashSlowStart(t *testing.T) {
	s := hashed(numbered(9, even))
	s.SlowStart = 10 * time.Second
	s.Update(numbered(10, even))
	last := map[uint64]bool{}
	for _, c := range []struct {
		at   time.Duration
		part float64
	}{{0, 0.1}, {2 * time.Second, 0.28}, {5 * time.Second, 0.55}, {10 * time.Second, 1}} {
		now := map[uint64]bool{}
		for key := range uint64(someKeys) {
			if s.Pick(Query{Now: c.at, Rand: rand.NewPCG(1, 2), Key: mix(key)}).Addr == "9" {
				now[key] = true
			}
		}
		for key := range last {
			if !now[key] {
				t.Fatalf("at %v a key has left the endpoint that starts", c.at)
			}
		}
		if got := float64(len(now)) * 10 / someKeys; math.Abs(got-c.part) > 0.15*c.part+0.02 {
			t.Errorf("at %v it has %.2f of its share, want about %.2f", c.at, got, c.part)
		}
		last = now
	}
}

// TestConsistentHashZones checks that a key has an owner in the zone, and one elsewhere once the load
// in the zone is much more.
func TestConsistentHashZones(t *testing.T) {
	s := &Set{Policy: ConsistentHash{}, Zone: "a"}
	targets := numbered(20, even)
	for i := range targets {
		targets[i].Zone = []string{"a", "b"}[i%2]
	}
	s.Update(targets)
	far := map[uint64]*Endpoint{}
	for range 2 {
		for key := range uint64(200) {
			q := Query{Rand: rand.NewPCG(1, 2), Key: mix(key)}
			e := s.Pick(q)
			if e.Zone != "a" {
				if h := far[key]; h != nil && h != e {
					t.Errorf("a key went to %s and %s of the other zone", h.Addr, e.Addr)
				}
				far[key] = e
			}
			e.Start(0)
			if q.Tried = []*Endpoint{e}; s.PickHedge(q, false) == e {
				t.Error("a hedge to the same endpoint")
			}
		}
	}
	if len(far) == 0 {
		t.Error("no request has left the zone")
	}
	if a, b := s.peers.near.ring.load, s.peers.far.ring.load; a+b != 400 || a <= b {
		t.Errorf("loads of the zones: %d and %d, want 400 together", a, b)
	}
}
