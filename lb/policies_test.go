package lb

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/racetest"
	"github.com/remora-proxy/remora/lb/outlier"
)

// TestPolicyNames: each policy is found by its name, and no policy by another name.
func TestPolicyNames(t *testing.T) {
	names := PolicyNames()
	for i, p := range Policies {
		if names[i] != p.Name || PolicyOf(p.Name) != p.Policy {
			t.Errorf("%s: named %s, and the name has %T", p.Name, names[i], PolicyOf(p.Name))
		}
	}
	if p := PolicyOf("other"); len(names) != len(Policies) || p != nil {
		t.Errorf("%d names, and another name has %T", len(names), p)
	}
}

// policies are the policies that give each idle endpoint its share of the picks.
var policies = []Policy{LeastPending{}, WeightedRoundRobin{}, PeakEWMA{}, Random{}}

// TestPoliciesByWeight checks that idle endpoints are picked in proportion to weight.
func TestPoliciesByWeight(t *testing.T) {
	for _, p := range policies {
		for _, n := range []int{1, 3, 8, 9, 60} {
			t.Run(fmt.Sprintf("%T/%d", p, n), func(t *testing.T) {
				s := Set{Policy: p}
				s.Update(numbered(n, func(i int) float64 { return float64(1 + i%3) }))
				picks := 2000 * n
				got := map[*Endpoint]int{}
				rnd := rand.NewPCG(1, 2)
				for range picks {
					got[s.Pick(Query{Now: 0, Rand: rnd})]++
				}
				for _, e := range s.peers.all.endpoints {
					want := float64(picks) * e.Weight / s.peers.all.sums[n-1]
					if math.Abs(float64(got[e])-want) > 0.2*want {
						t.Errorf("weight %v got %d picks, want about %.0f", e.Weight, got[e], want)
					}
				}
			})
		}
	}
}

// TestPoliciesEligibility checks that every policy picks tried, stalled, unhealthy and
// ejected endpoints only if no other is left, and in the right order.
func TestPoliciesEligibility(t *testing.T) {
	for _, named := range Policies {
		p := named.Policy
		for _, n := range []int{4, 40} {
			t.Run(fmt.Sprintf("%T/%d", p, n), func(t *testing.T) {
				rnd := rand.NewPCG(1, 2)
				s := Set{
					Policy: p, Stall: Stall{After: ms, Probe: time.Hour},
					Outlier: outlier.Rules{Consecutive: 1, Base: time.Hour, MaxEjected: 1},
				}
				targets := numbered(n, even)
				targets[1].Unhealthy = true
				s.Update(targets)
				stalled, unhealthy, ejected, good := s.At(0), s.At(1), s.At(2), s.At(3)
				stalled.Start(0)
				stalled.Start(0)
				ejected.Judge(0, false)
				tried := slices.Clone(s.peers.all.endpoints[4:])
				for range 200 {
					if e := s.Pick(Query{Now: 10 * ms, Rand: rnd, Tried: tried}); e != good {
						t.Fatalf("picked %s", e.Addr)
					}
					if e := s.PickHedge(Query{Now: 10 * ms, Rand: rnd, Tried: tried}, false); e != good {
						t.Fatalf("picked %s for a hedge", e.Addr)
					}
				}
				tried = append(tried, good)
				if e := s.PickHedge(Query{Now: 10 * ms, Rand: rnd, Tried: tried}, false); e != nil {
					t.Errorf("a hedge to %s", e.Addr)
				}
				if e := s.Pick(Query{Now: 10 * ms, Rand: rnd, Tried: tried}); e != stalled {
					t.Errorf("picked %s before the stalled one", e.Addr)
				}
				tried = append(tried, stalled)
				if e := s.Pick(Query{Now: 10 * ms, Rand: rnd, Tried: tried}); e != unhealthy && e != ejected {
					t.Errorf("picked %v as a last resort", e)
				}
				if e := s.Pick(Query{Now: 10 * ms, Rand: rnd, Tried: append(tried, unhealthy, ejected)}); e != nil {
					t.Errorf("picked %s, although all were tried", e.Addr)
				}
			})
		}
	}
}

func TestPolicyAllocations(t *testing.T) {
	if racetest.Enabled {
		t.Skip("the race detector allocates")
	}
	for _, named := range Policies {
		p := named.Policy
		s := Set{Policy: p, Zone: "a", SlowStart: time.Hour, Outlier: outlier.Rules{
			Consecutive: 5, SuccessRate: 0.5, Latency: 3, Base: ms, MaxEjected: 0.5,
		}}
		targets := numbered(30, even)
		for i := range targets {
			targets[i].Zone = []string{"a", "b"}[i%2]
		}
		s.Update(targets[:25])
		s.Update(targets)
		rnd := rand.NewPCG(1, 2)
		var now time.Duration
		s.Pick(Query{Now: now, Rand: rnd})
		requests := 0
		allocs := testing.AllocsPerRun(5000, func() {
			now += ms
			e := s.Pick(Query{Now: now, Rand: rnd})
			e.Start(now)
			requests++
			e.Judge(now, requests%5 == 0)
			e.Finish(now, ms)
		})
		if allocs != 0 || s.peers.health.counts[outlier.ByConsecutive]+s.peers.health.counts[outlier.BySuccessRate] == 0 {
			t.Errorf("%T: %v allocations a request, ejections %v", p, allocs, s.peers.health.counts)
		}
	}
}

// sequence returns the addresses of n picks.
func sequence(s *Set, n int) string {
	var b strings.Builder
	rnd := rand.NewPCG(3, 4)
	for range n {
		b.WriteString(s.Pick(Query{Now: 0, Rand: rnd}).Addr)
	}
	return b.String()
}

// TestRoundRobinSpread checks that each endpoint has its exact share of any stretch, give
// or take one turn.
func TestRoundRobinSpread(t *testing.T) {
	for _, weights := range [][]float64{{1}, {1, 1}, {5, 1, 1}, {1, 2, 3, 4}, {0.5, 7}} {
		s := Set{Policy: WeightedRoundRobin{}}
		var total float64
		var targets []Target
		for i, w := range weights {
			targets = append(targets, Target{Addr: string(rune('a' + i)), Weight: w})
			total += w
		}
		s.Update(targets)
		turns := sequence(&s, 500)
		for from := 0; from < 400; from += 7 {
			for _, length := range []int{1, 2, 7, 20, 99} {
				stretch := turns[from : from+length]
				for i, w := range weights {
					got, want := float64(strings.Count(stretch, targets[i].Addr)), float64(length)*w/total
					// A stretch may begin or end just before a turn, and turns at
					// the same time come one after another.
					if slack := 1 + float64(len(weights)-1)*w/total; math.Abs(got-want) > slack+1e-9 {
						t.Fatalf("weights %v: %q has %v of %s, want %.2f", weights, stretch, got, targets[i].Addr, want)
					}
				}
			}
		}
	}
}

// TestRoundRobinOfMany: endpoints of the same weight have one turn each in a round, also if snapshots come in between.
func TestRoundRobinOfMany(t *testing.T) {
	three := func(int) float64 { return 3 }
	for _, updates := range []bool{false, true} {
		for n := 1; n < 20; n++ {
			s, rnd := Set{Policy: WeightedRoundRobin{}}, rand.NewPCG(1, uint64(n))
			s.Update(numbered(n, three))
			for round := range 20 {
				got := map[*Endpoint]bool{}
				for range n {
					if got[s.Pick(Query{Rand: rnd})] = true; updates {
						s.Update(numbered(n, three))
					}
				}
				if len(got) != n {
					t.Errorf("%d of %d endpoints had a turn in round %d, with snapshots %t", len(got), n, round, updates)
				}
			}
		}
	}
}

// TestRoundRobinGrowth: an endpoint keeps its turn as its weight doubles, and begins anew if its weight grows more.
func TestRoundRobinGrowth(t *testing.T) {
	for weight, kept := range map[float64]bool{.5: true, 1: true, 2: true, 2.5: false, 100: false} {
		s, rnd := Set{Policy: WeightedRoundRobin{}}, rand.NewPCG(1, 2)
		s.Update(numbered(2, even))
		e := s.Pick(Query{Rand: rnd})
		s.Update(numbered(2, func(int) float64 { return weight }))
		s.peers.all.turns.begin(&View{Query: Query{Rand: rnd}, set: &s, group: &s.peers.all})
		if math.Abs(e.nextTurn-1) < 1e-9 != kept {
			t.Errorf("weight 1 becomes %v: the next turn is at %v", weight, e.nextTurn)
		}
	}
}

// TestRoundRobinStart checks that sidecars with the same first snapshot do not all begin
// with the same endpoint.
func TestRoundRobinStart(t *testing.T) {
	first := map[string]int{}
	for seed := range uint64(3000) {
		s := Set{Policy: WeightedRoundRobin{}}
		s.Update(numbered(3, even))
		first[s.Pick(Query{Now: 0, Rand: rand.NewPCG(seed, 1)}).Addr]++
	}
	for addr, n := range first {
		if n < 800 || n > 1200 {
			t.Errorf("%d of 3000 loops began with %s", n, addr)
		}
	}
}

// TestRoundRobinUpdate checks that a snapshot with one more endpoint neither restarts the
// others nor gives the new one more than its share.
func TestRoundRobinUpdate(t *testing.T) {
	s := Set{Policy: WeightedRoundRobin{}}
	all := []Target{{Addr: "a"}, {Addr: "b"}, {Addr: "c"}, {Addr: "d"}}
	s.Update(all[:3])
	sequence(&s, 1000)
	s.Update(all)
	turns := sequence(&s, 400)
	for _, target := range all {
		if n := strings.Count(turns, target.Addr); n < 98 || n > 102 {
			t.Errorf("%s had %d of 400 turns", target.Addr, n)
		}
	}
}

func TestPeakEWMA(t *testing.T) {
	s := Set{Policy: PeakEWMA{}}
	s.Update([]Target{{Addr: "a"}, {Addr: "b"}, {Addr: "c", Weight: 2}})
	rnd := rand.NewPCG(1, 2)
	a, b, c := s.At(0), s.At(1), s.At(2)
	answer := func(e *Endpoint, now, latency time.Duration) {
		e.Start(now - latency)
		e.Finish(now, latency)
	}
	pick := func(now time.Duration, want *Endpoint, why string) {
		t.Helper()
		if e := s.Pick(Query{Now: now, Rand: rnd}); e != want {
			t.Errorf("%s: picked %s", why, e.Addr)
		}
	}
	answer(a, 10*ms, 2*ms)
	answer(b, 10*ms, 2*ms)
	pick(10*ms, c, "c is unknown")
	c.Start(10 * ms)
	a.Start(10 * ms)
	pick(10*ms, b, "c has not responded yet, a has one pending")
	c.Finish(14*ms, 4*ms)
	a.Finish(14*ms, 2*ms)
	b.Start(14 * ms)
	c.Start(14 * ms)
	c.Start(14 * ms)
	pick(14*ms, a, "a is idle")
	a.Start(14 * ms)
	a.Start(14 * ms)
	pick(14*ms, b, "b has one, a two, c two of twice the latency at twice the weight")

	b.Finish(64*ms, 50*ms)
	a.Start(64 * ms)
	pick(64*ms, c, "b's one slow response counts at once; a has three, c two of twice the latency at twice the weight")
	for now := 65 * ms; now < 100*ms; now += 5 * ms {
		answer(b, now, 2*ms)
	}
	if got := b.peak.at(100 * ms); got < float64(40*ms) {
		t.Errorf("after a few fast responses a peak of 50 ms has sunk to %v", time.Duration(got))
	}
	if got := b.peak.at(time.Minute); got > float64(2*ms) {
		t.Errorf("after a minute it is still %v", time.Duration(got))
	}
}

func BenchmarkPolicies(b *testing.B) {
	for _, p := range policies {
		for _, n := range []int{3, 200} {
			b.Run(fmt.Sprintf("%T/%d", p, n), func(b *testing.B) {
				rnd := rand.NewPCG(1, 2)
				s := Set{Policy: p, Outlier: outlier.Rules{Consecutive: 5, SuccessRate: 0.5, Base: time.Second, MaxEjected: 0.5}}
				s.Update(numbered(n, even))
				var now time.Duration
				b.ReportAllocs()
				for b.Loop() {
					now += time.Microsecond
					e := s.Pick(Query{Now: now, Rand: rnd})
					e.Start(now)
					e.Judge(now, true)
					e.Finish(now, ms)
				}
			})
		}
	}
}

// TestGreatWeights checks that idle endpoints with great weights are picked in
// proportion to weight, from the first pick on, after years of turns of endpoints with
// little weight.
func TestGreatWeights(t *testing.T) {
	for _, p := range policies {
		s := Set{Policy: p}
		s.Update([]Target{{Addr: "a"}, {Addr: "b"}})
		rnd := rand.NewPCG(1, 2)
		s.Pick(Query{Now: 0, Rand: rnd})
		s.peers.virtual += 1e14
		for i := range s.Len() {
			s.At(i).nextTurn += 1e14
		}
		s.Update([]Target{{Addr: "a", Weight: 65535}, {Addr: "b", Weight: 13107}})
		heavy := 0
		for range 6000 {
			if s.Pick(Query{Now: 0, Rand: rnd}).Addr == "a" {
				heavy++
			}
		}
		if heavy < 4800 || heavy > 5200 {
			t.Errorf("%T: weights 65535 and 13107 get %d and %d picks", p, heavy, 6000-heavy)
		}
	}
}
