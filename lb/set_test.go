package lb

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/racetest"
)

func addrs(es []*Endpoint) []string {
	var out []string
	for _, e := range es {
		out = append(out, e.Addr)
	}
	return out
}

func TestUpdate(t *testing.T) {
	var s Set
	added, removed := s.Update([]Target{{Addr: "a"}, {Addr: "a", Weight: 9}, {Addr: "b", Zone: "x", Weight: 2}})
	if got := addrs(added); !slices.Equal(got, []string{"a", "b"}) || removed != nil {
		t.Fatalf("added %v, removed %v", got, addrs(removed))
	}
	a, b := added[0], added[1]
	if a.Weight != 1 || b.Weight != 2 || b.Zone != "x" {
		t.Errorf("weights %v and %v, zone %q", a.Weight, b.Weight, b.Zone)
	}
	a.Start(0)
	b.Start(0)
	b.Finish(5*ms, 5*ms)
	b.Ext = "kept"

	added, removed = s.Update([]Target{{Addr: "c"}, {Addr: "b", Zone: "y", Weight: 3}})
	if got := addrs(added); !slices.Equal(got, []string{"c"}) {
		t.Errorf("added %v", got)
	}
	if got := addrs(removed); !slices.Equal(got, []string{"a"}) {
		t.Errorf("removed %v", got)
	}
	if s.Len() != 2 || s.At(1) != b || s.Lookup("b") != b || s.Lookup("a") != nil {
		t.Error("the set does not hold its targets")
	}
	if b.Latency() != 5*ms || b.Ext != "kept" || b.Weight != 3 || b.Zone != "y" {
		t.Errorf("history lost or attributes stale: %+v", b)
	}
	a.Finish(9*ms, 9*ms) // pending attempts are still counted down
	if a.Pending() != 0 {
		t.Errorf("pending %d at the removed", a.Pending())
	}

	added, removed = s.Update(nil)
	if added != nil || len(removed) != 2 || s.Len() != 0 {
		t.Errorf("emptied: added %v, removed %v", addrs(added), addrs(removed))
	}
	if s.Pick(Query{Now: 0, Rand: rand.NewPCG(1, 1)}) != nil || s.PickHedge(Query{Now: 0, Rand: rand.NewPCG(1, 1)}, false) != nil {
		t.Error("picked from an empty set")
	}
}

func TestUpdateWeights(t *testing.T) {
	for _, c := range []struct{ in, want float64 }{
		{0, 1}, {-3, 1}, {math.NaN(), 1}, {math.Inf(1), maxWeight}, {math.Inf(-1), 1}, {0.5, 0.5}, {1e9, maxWeight},
	} {
		var s Set
		added, _ := s.Update([]Target{{Addr: "a", Weight: c.in}})
		if added[0].Weight != c.want {
			t.Errorf("weight %v became %v, want %v", c.in, added[0].Weight, c.want)
		}
	}
}

func numbered(n int, weight func(i int) float64) []Target {
	out := make([]Target, n)
	for i := range out {
		out[i] = Target{Addr: strconv.Itoa(i), Weight: weight(i)}
	}
	return out
}

func even(int) float64 { return 1 }

// A pick is never a tried endpoint, and there is one while any is untried. A hedge never
// goes to a stalled endpoint, or to one without spare capacity.
func TestPickProperties(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{1, 2, 3, 8, 9, 40} {
		s := Set{Stall: Stall{After: 5 * ms, Probe: 2 * ms}}
		s.Update(numbered(n, func(i int) float64 { return float64(1 + i%3) }))
		var now time.Duration
		var tried []*Endpoint
		for range 20000 {
			now += time.Duration(rnd.IntN(1000)) * time.Microsecond
			switch e := s.At(rnd.IntN(n)); {
			case e.Pending() > 0 && rnd.IntN(3) > 0:
				if rnd.IntN(4) == 0 {
					e.Drop()
				} else {
					e.Finish(now, time.Duration(rnd.IntN(5))*ms)
				}
			case rnd.IntN(4) == 0:
				e.Report(now, Load{Pending: rnd.IntN(10), SinceResponse: time.Duration(rnd.IntN(20)-1) * ms}, e.Pending())
			}
			tried = tried[:0]
			for len(tried) < n {
				if h := s.PickHedge(Query{Now: now, Rand: rnd, Tried: tried}, false); h != nil {
					if slices.Contains(tried, h) || s.Stalled(now, h) || !h.Spare(now) {
						t.Fatalf("a hedge to %s: tried, stalled or without spare capacity", h.Addr)
					}
				}
				e := s.Pick(Query{Now: now, Rand: rnd, Tried: tried})
				if e == nil || slices.Contains(tried, e) {
					t.Fatalf("%d of %d tried, and the pick was %v", len(tried), n, e)
				}
				tried = append(tried, e)
				if rnd.IntN(2) == 0 {
					break
				}
			}
			if len(tried) == n && (s.Pick(Query{Now: now, Rand: rnd, Tried: tried}) != nil || s.PickHedge(Query{Now: now, Rand: rnd, Tried: tried}, false) != nil) {
				t.Fatal("all were tried, and there was a pick")
			}
			tried[0].Start(now)
		}
	}
}

// Idle endpoints are picked in proportion to weight, and loaded ones fill up in
// proportion to it.
func TestFairness(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{2, 3, 8, 9, 30} {
		weight := func(i int) float64 { return float64(1 + i%3) }
		var s Set
		s.Update(numbered(n, weight))
		total := s.peers.all.sums[n-1]
		idle := map[*Endpoint]int{}
		const picks = 60000
		for range picks {
			idle[s.Pick(Query{Now: 0, Rand: rnd})]++
		}
		held := 300 * n
		for range held {
			s.Pick(Query{Now: 0, Rand: rnd}).Start(0)
		}
		for i := range n {
			e := s.At(i)
			share := weight(i) / total
			if got := float64(idle[e]) / picks; math.Abs(got-share) > 0.1*share {
				t.Errorf("%d endpoints: idle, weight %v got %.4f, want about %.4f", n, e.Weight, got, share)
			}
			if got := float64(e.Pending()) / float64(held); math.Abs(got-share) > 0.05*share {
				t.Errorf("%d endpoints: loaded, weight %v has %.4f, want about %.4f", n, e.Weight, got, share)
			}
		}
	}
}

func TestDrawByWeight(t *testing.T) {
	var s Set
	s.Update(numbered(4, func(i int) float64 { return float64(1 + i) }))
	v := View{Query: Query{Rand: rand.NewPCG(1, 2)}, set: &s, group: &s.peers.all}
	const draws = 100000
	got := map[*Endpoint]int{}
	for range draws {
		got[v.Draw()]++
	}
	for i := range 4 {
		if share := float64(got[s.At(i)]) / draws; math.Abs(share-float64(1+i)/10) > 0.01 {
			t.Errorf("weight %d of 10 was drawn %.3f of the time", 1+i, share)
		}
	}
}

func TestPickOrder(t *testing.T) {
	answer := func(e *Endpoint, latency time.Duration) {
		e.Start(0)
		e.Finish(latency, latency)
	}
	for _, c := range []struct {
		name string
		do   func(a, b *Endpoint)
		want string // those of the two that are picked
	}{
		{"equals", func(a, b *Endpoint) {}, "ab"},
		{"fewer pending", func(a, b *Endpoint) { a.Start(0) }, "b"},
		{"fewer pending before latency", func(a, b *Endpoint) { a.Start(0); answer(b, 9*ms) }, "b"},
		{"fewer of others", func(a, b *Endpoint) {
			a.Report(10*ms, Load{Pending: 1}, 0)
			b.Report(10*ms, Load{Pending: 3}, 0)
		}, "a"},
		{"lower latency", func(a, b *Endpoint) { answer(a, 2*ms); answer(b, 1*ms) }, "b"},
		{"lower latency of the first", func(a, b *Endpoint) { answer(a, 1*ms); answer(b, 2*ms) }, "a"},
		{"about the same latency", func(a, b *Endpoint) { answer(a, 1250*time.Microsecond); answer(b, 1*ms) }, "ab"},
	} {
		t.Run(c.name, func(t *testing.T) {
			// Two of nine are left untried, for the scan and for the draw.
			for _, n := range []int{2, 9} {
				rnd := rand.NewPCG(1, 2)
				var s Set
				s.Update(numbered(n, even))
				c.do(s.At(0), s.At(1))
				got := [2]bool{}
				for range 50 {
					e := s.Pick(Query{Now: 10 * ms, Rand: rnd, Tried: s.peers.all.endpoints[2:]})
					got[slices.Index(s.peers.all.endpoints, e)] = true
				}
				want := [2]bool{c.want[0] == 'a', c.want[len(c.want)-1] == 'b'}
				if got != want {
					t.Errorf("%d endpoints: picked a, b: %v, want %v", n, got, want)
				}
			}
		})
	}
}

// An endpoint that is removed and added again is still the replica that was tried.
func TestPickTriedAgainAdded(t *testing.T) {
	var s Set
	s.Update([]Target{{Addr: "a"}, {Addr: "b"}})
	tried := []*Endpoint{s.Lookup("a"), nil} // nil is an attempt that waits for a slot
	s.Update([]Target{{Addr: "b"}})
	s.Update([]Target{{Addr: "a"}, {Addr: "b"}})
	rnd := rand.NewPCG(1, 1)
	for range 20 {
		if e := s.Pick(Query{Now: 0, Rand: rnd, Tried: tried}); e.Addr != "b" {
			t.Fatalf("picked %s for a retry", e.Addr)
		}
		if e := s.PickHedge(Query{Now: 0, Rand: rnd, Tried: tried}, false); e.Addr != "b" {
			t.Fatalf("picked %s for a hedge", e.Addr)
		}
	}
}

func TestPickAvoidsStalled(t *testing.T) {
	rnd := rand.NewPCG(1, 2)
	s := Set{Stall: Stall{After: 5 * ms, Probe: 3 * ms}}
	s.Update(numbered(2, even))
	a, b := s.At(0), s.At(1)
	for range 2 {
		a.Start(0)
	}
	for range 3 { // b has more pending, but responds
		b.Start(0)
	}
	b.Start(0)
	b.Finish(4*ms, 4*ms)
	if e := s.Pick(Query{Now: 4 * ms, Rand: rnd}); e != a {
		t.Error("not stalled yet, a has the least pending")
	}
	if e := s.Pick(Query{Now: 5 * ms, Rand: rnd}); e != a {
		t.Error("stalled, but due for a probe")
	}
	a.Start(5 * ms) // the probe
	b.Start(5 * ms)
	if e := s.Pick(Query{Now: 7 * ms, Rand: rnd}); e != b {
		t.Error("picked a stalled endpoint right after its probe")
	}
	if e := s.Pick(Query{Now: 8 * ms, Rand: rnd}); e != b {
		t.Error("a probe one delay after the last, though a is silent for more than two")
	}
	if e := s.Pick(Query{Now: 10 * ms, Rand: rnd}); e != a {
		t.Error("half of the silence after the probe the next is due")
	}
	if e := s.PickHedge(Query{Now: 8 * ms, Rand: rnd, Tried: []*Endpoint{b}}, false); e != nil {
		t.Error("a hedge went to a stalled endpoint as a probe")
	}
	if e := s.Pick(Query{Now: 7 * ms, Rand: rnd, Tried: []*Endpoint{b}}); e != a {
		t.Error("a stalled endpoint is better than none")
	}
	for range 3 {
		a.Finish(8*ms, 8*ms)
	}
	if e := s.PickHedge(Query{Now: 8 * ms, Rand: rnd, Tried: []*Endpoint{b}}, false); e != a {
		t.Error("it has responded to all, and is no longer stalled")
	}
}

// Unhealthy endpoints are picked last, and never for a hedge. If all are unhealthy, none
// counts as such.
func TestPickAvoidsUnhealthy(t *testing.T) {
	for _, n := range []int{3, 50} { // for the scan and for the draw
		rnd := rand.NewPCG(1, 2)
		s := Set{Stall: Stall{After: 5 * ms, Probe: time.Hour}}
		targets := numbered(n, even)
		for i := range targets {
			targets[i].Unhealthy = i > 0
		}
		s.Update(targets)
		good := s.At(0)
		for range 4 {
			good.Start(0)
		}
		for now := time.Duration(0); now < 100*ms; now += ms { // stalled from 5 ms on
			if e := s.Pick(Query{Now: now, Rand: rnd}); e != good {
				t.Fatalf("%d endpoints, at %v: picked the unhealthy %s", n, now, e.Addr)
			}
		}
		tried := []*Endpoint{good}
		if e := s.Pick(Query{Now: 0, Rand: rnd, Tried: tried}); e == nil || e == good {
			t.Errorf("%d endpoints: picked %v when the healthy one was tried", n, e)
		}
		if e := s.PickHedge(Query{Now: 0, Rand: rnd, Tried: tried}, false); e != nil {
			t.Errorf("%d endpoints: a hedge to the unhealthy %s", n, e.Addr)
		}

		targets[0].Unhealthy = true
		s.Update(targets)
		if e := s.Pick(Query{Now: 0, Rand: rnd}); e == nil || e == good {
			t.Errorf("%d endpoints, all unhealthy: picked %v, which is not the least loaded", n, e)
		}
		if e := s.PickHedge(Query{Now: 0, Rand: rnd, Tried: tried}, false); e == nil {
			t.Errorf("%d endpoints, all unhealthy: no hedge", n)
		}

		targets[1].Unhealthy = false
		s.Update(targets)
		if e := s.Pick(Query{Now: 0, Rand: rnd}); e != s.At(1) {
			t.Errorf("%d endpoints: picked %s and not the one that has recovered", n, e.Addr)
		}
	}
}

func TestPickAllocations(t *testing.T) {
	if racetest.Enabled {
		t.Skip("the race detector allocates")
	}
	for _, n := range []int{3, 50} {
		rnd := rand.New(rand.NewPCG(1, 2))
		s := Set{Stall: Stall{After: 5 * ms, Probe: 3 * ms}}
		s.Update(numbered(n, even))
		tried := make([]*Endpoint, 0, 2)
		var now time.Duration
		allocs := testing.AllocsPerRun(1000, func() {
			now += ms
			e := s.Pick(Query{Now: now, Rand: rnd})
			e.Start(now)
			tried = append(tried[:0], e)
			if h := s.PickHedge(Query{Now: now, Rand: rnd, Tried: tried}, false); h != nil {
				h.Start(now)
				h.Report(now, Load{Pending: 5}, 1)
				h.Drop()
			}
			e.Finish(now, ms)
		})
		if allocs != 0 {
			t.Errorf("%d endpoints: %v allocations per request", n, allocs)
		}
	}
}

func BenchmarkPick(b *testing.B) {
	for _, n := range []int{3, 8, 9, 200} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			rnd := rand.NewPCG(1, 2)
			s := Set{Stall: Stall{After: 5 * ms, Probe: 3 * ms}}
			s.Update(numbered(n, even))
			var now time.Duration
			b.ReportAllocs()
			for b.Loop() {
				now += time.Microsecond
				e := s.Pick(Query{Now: now, Rand: rnd})
				e.Start(now)
				e.Finish(now, ms)
			}
		})
	}
}

// none is a policy that finds no endpoint.
type none struct{}

// Choose implements Policy.
func (none) Choose(*View) *Endpoint { return nil }

// TestPickKeepsNothing: after a pick the set holds nothing of the caller's.
func TestPickKeepsNothing(t *testing.T) {
	s := Set{}
	s.Update(numbered(3, even))
	s.Pick(Query{Rand: rand.NewPCG(1, 2), Tried: []*Endpoint{s.At(0)}, Pin: s.At(0)})
	if v := &s.view; v.Rand != nil || v.Tried != nil || v.Pin != nil {
		t.Errorf("the set holds %+v", v.Query)
	}
}

// TestPickOfOne checks that a single endpoint is picked by every policy, however busy it is, but not for a
// hedge of the request that it has.
func TestPickOfOne(t *testing.T) {
	for _, p := range append(policies, ConsistentHash{}, none{}) {
		s := Set{Policy: p}
		s.Update(numbered(1, even))
		only, rnd := s.At(0), rand.NewPCG(1, 2)
		for range 100 {
			if e := s.Pick(Query{Now: 10 * ms, Rand: rnd}); e != only {
				t.Fatalf("%T: picked %v", p, e)
			}
			only.Start(0)
		}
		if e := s.PickHedge(Query{Now: 10 * ms, Rand: rnd, Tried: []*Endpoint{only}}, true); e != nil || s.PassedOver != 0 {
			t.Errorf("%T: hedged at %v, passed over %d times", p, e, s.PassedOver)
		}
	}
}
