package lb

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb/outlier"
)

// TestConsistentHashBound checks that with skewed keys no endpoint ever has more than its bound,
// the mean times Balance, rounded up, and that a request passes its owner over only then.
func TestConsistentHashBound(t *testing.T) {
	for _, weight := range []func(i int) float64{even, func(i int) float64 { return float64(1 + i%3) }} {
		rnd := rand.New(rand.NewPCG(3, 4))
		s := hashed(numbered(10, weight))
		s.Balance = 1.25
		zipf := rand.NewZipf(rnd, 1.0001, 1, 1000)
		var busy []*Endpoint
		total := s.peers.all.sums[9]
		first := 0
		for i := range 50_000 {
			key := mix(zipf.Uint64())
			over := func(e *Endpoint) bool {
				return float64(e.Pending()+1) > math.Ceil(1.25*float64(len(busy)+1)*e.Weight/total)
			}
			e, owner := s.Pick(Query{Rand: rnd, Key: key}), unbound(s, key)
			if e == owner {
				first++
			}
			if over(e) || (e != owner) != over(owner) {
				t.Fatalf("request %d of %d: to %s with %d in flight, whose owner is %s with %d",
					i, len(busy)+1, e.Addr, e.Pending(), owner.Addr, owner.Pending())
			}
			e.Start(0)
			busy = append(busy, e)
			for len(busy) > 100+i%300 {
				j := rnd.IntN(len(busy))
				busy[j].Finish(0, ms)
				busy = slices.Delete(busy, j, j+1)
			}
		}
		if first < 50_000/2 {
			t.Errorf("%d of 50000 requests went to the owner of their key", first)
		}
	}
}

// TestConsistentHashBoundOfUsable checks that endpoints that are ejected take no part in the mean.
func TestConsistentHashBoundOfUsable(t *testing.T) {
	s := hashed(numbered(4, even))
	s.Balance, s.Outlier = 1.5, outlier.Rules{Consecutive: 1, Base: time.Hour, MaxEjected: 0.5}
	s.Retune()
	s.At(0).Judge(0, false)
	s.At(1).Judge(0, false)
	first := 0
	for i := range uint64(200) {
		e := s.Pick(Query{Rand: rand.NewPCG(1, 2), Key: mix(i)})
		if e == unbound(s, mix(i)) {
			first++
		}
		e.Start(0)
	}
	if first < 190 {
		t.Errorf("%d of 200 requests went to the owner of their key", first)
	}
}

// unbound returns the owner of a key without a bound.
func unbound(s *Set, key uint64) *Endpoint {
	balance := s.Balance
	s.Balance = 0
	defer func() { s.Balance = balance }()
	return s.Pick(Query{Rand: rand.NewPCG(1, 2), Key: key})
}

// TestPassedOver checks that a pick counts once, and only that of a first attempt.
func TestPassedOver(t *testing.T) {
	s := hashed(numbered(2, even))
	q := Query{Now: 10 * ms, Rand: rand.NewPCG(1, 2)}
	check := func(what string, want uint64) {
		t.Helper()
		if s.PassedOver != want {
			t.Errorf("%s: %d passed over, want %d", what, s.PassedOver, want)
		}
	}
	owner := s.Pick(q)
	check("owner", 0)
	owner.Unhealthy = true
	s.Retune()
	passed := uint64(0)
	for key := range uint64(100) {
		r := s.peers.all.ring
		if r.members[r.points[r.search(uint32(mix(key)>>32))].owner].Endpoint == owner {
			passed++
		}
		s.Pick(Query{Now: 10 * ms, Rand: q.Rand, Key: mix(key)})
	}
	check("the owner of some keys is unhealthy", passed)
	s.PassedOver, owner.Unhealthy = 0, false
	s.Retune()
	s.Stall = Stall{After: ms, Probe: time.Hour}
	for range 2 {
		s.At(0).Start(0)
		s.At(1).Start(0)
	}
	s.Pick(q)
	check("all stalled", 1)
	s.Pick(Query{Now: 10 * ms, Rand: q.Rand, Tried: []*Endpoint{owner}})
	check("retry", 1)
	s.PickHedge(q, false)
	check("hedge of another sidecar", 1)
}

// TestRingLoad checks that the load of a ring is that of its members, whatever comes and goes.
func TestRingLoad(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	s := hashed(numbered(10, even))
	var busy []*Endpoint
	for range 3000 {
		switch rnd.IntN(8) {
		case 0:
			s.Update(numbered(1+rnd.IntN(12), func(int) float64 { return float64(1 + rnd.IntN(2)) }))
		case 1:
			s.Policy = []Policy{ConsistentHash{}, Random{}}[rnd.IntN(2)]
			s.Retune()
		case 2, 3:
			if len(busy) > 0 {
				busy[0].Drop()
				busy[0].CloseStream()
				busy = busy[1:]
			}
		default:
			e := s.Pick(Query{Rand: rnd, Key: rnd.Uint64()})
			e.Start(0)
			e.OpenStream(0)
			busy = append(busy, e)
		}
		if !Keyed(s.Policy) {
			if s.peers.all.ring != nil || s.At(0).ring != nil {
				t.Fatal("there is a ring under another policy")
			}
			continue
		}
		load := 0
		for _, e := range s.peers.all.endpoints {
			load += e.pending + e.streams
		}
		if s.peers.all.ring.load != load {
			t.Fatalf("the ring counts %d, its members have %d", s.peers.all.ring.load, load)
		}
	}
}

// BenchmarkConsistentHash picks among idle endpoints, and among those of which many are at the bound.
func BenchmarkConsistentHash(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		for _, load := range []int{0, 2} {
			b.Run(fmt.Sprintf("%d/load=%d", n, load), func(b *testing.B) {
				rnd := rand.NewPCG(1, 2)
				s := hashed(numbered(n, even))
				s.Balance = 1.25
				for range load * n {
					s.Pick(Query{Rand: rnd, Key: rnd.Uint64()}).Start(0)
				}
				key := uint64(0)
				b.ReportAllocs()
				for b.Loop() {
					key = mix(key + golden)
					s.Pick(Query{Rand: rnd, Key: key})
				}
			})
		}
	}
}

func BenchmarkRing(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			s := hashed(numbered(n, even))
			for b.Loop() {
				newRing(s.peers.all.endpoints)
			}
		})
	}
}
