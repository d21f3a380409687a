package lb

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb/outlier"
)

// TestSlowStart checks that the share of a new endpoint grows linearly with every policy.
func TestSlowStart(t *testing.T) {
	for _, p := range policies {
		s := Set{Policy: p, SlowStart: 10 * time.Second}
		s.Update([]Target{{Addr: "a"}, {Addr: "b"}, {Addr: "c"}})
		rnd := rand.NewPCG(1, 2)
		share := func(now time.Duration) float64 {
			n := 0
			for range 6000 {
				if s.Pick(Query{Now: now, Rand: rnd}).Addr == "new" {
					n++
				}
			}
			return float64(n) / 6000
		}
		s.Pick(Query{Now: time.Second, Rand: rnd})
		s.Update([]Target{{Addr: "a"}, {Addr: "b"}, {Addr: "c"}, {Addr: "new", Weight: 1}})
		for _, c := range []struct {
			after    time.Duration
			min, max float64
		}{
			{0, 0.02, 0.045}, // 0.1 of 3.1
			{5 * time.Second, 0.12, 0.19},
			{10 * time.Second, 0.23, 0.27},
			{time.Hour, 0.23, 0.27},
		} {
			if got := share(time.Minute + c.after); got < c.min || got > c.max {
				t.Errorf("%T: after %v the share is %.3f, want %v to %v", p, c.after, got, c.min, c.max)
			}
		}
	}
}

// TestSlowStartOfMost checks that endpoints start at once if they are more than half of a
// set, as in the first snapshot, and slowly if they are half of it.
func TestSlowStartOfMost(t *testing.T) {
	for _, c := range []struct {
		name   string
		window time.Duration
		old    []string
		new    []string
		slow   bool
	}{
		{"the first snapshot", sec, nil, []string{"a", "b"}, false},
		{"one of four", sec, []string{"a", "b", "c"}, []string{"a", "b", "c", "d"}, true},
		{"half", sec, []string{"a", "b"}, []string{"a", "b", "c", "d"}, true},
		{"more than half", sec, []string{"a", "b"}, []string{"a", "b", "c", "d", "e"}, false},
		{"all", sec, []string{"a", "b"}, []string{"c", "d"}, false},
		{"no slow start", 0, []string{"a", "b", "c"}, []string{"a", "b", "c", "d"}, false},
	} {
		s := Set{SlowStart: c.window}
		s.Update(targetsOf(c.old))
		added, _ := s.Update(targetsOf(c.new))
		for _, e := range added {
			if slow := e.effectiveWeight < e.Weight; slow != c.slow {
				t.Errorf("%s: %s starts slowly: %v", c.name, e.Addr, slow)
			}
		}
	}
}

// TestSlowStartUpdates checks that a snapshot neither ends nor restarts a ramp, and that
// growing endpoints count in the half that may be slow.
func TestSlowStartUpdates(t *testing.T) {
	s := Set{SlowStart: 10 * time.Second}
	rnd := rand.NewPCG(1, 2)
	s.Update(targetsOf([]string{"a", "b"}))
	s.Update(targetsOf([]string{"a", "b", "c"}))
	s.Pick(Query{Now: 0, Rand: rnd})
	s.Update([]Target{{Addr: "a"}, {Addr: "b"}, {Addr: "c", Weight: 4}, {Addr: "d"}})
	s.Pick(Query{Now: 5 * time.Second, Rand: rnd})
	if c := s.Lookup("c"); c.effectiveWeight < 2 || c.effectiveWeight > 2.4 {
		t.Errorf("half-way to 4 the weight is %v", c.effectiveWeight)
	}
	s.Update(targetsOf([]string{"a", "b", "c", "d", "e"}))
	if e := s.Lookup("e"); e.effectiveWeight != 1 {
		t.Errorf("with two of five still slow, a third starts with %v", e.effectiveWeight)
	}
	if s.Pick(Query{Now: 16 * time.Second, Rand: rnd}); s.peers.ramps.n != 0 {
		t.Errorf("%d still grow", s.peers.ramps.n)
	}
}

// TestRampSteps: the weight of one endpoint grows with the first pick, and then each rampStep.
func TestRampSteps(t *testing.T) {
	s := Set{SlowStart: 10 * time.Second}
	s.Update(targetsOf([]string{"a", "b"}))
	s.Update(targetsOf([]string{"a", "b", "c"}))
	for _, c := range []struct {
		at   time.Duration
		want float64
	}{{0, .1}, {rampStep - 1, .1}, {rampStep, .109}, {2*rampStep - 1, .109}, {2 * rampStep, .118}, {9 * time.Second, .91}, {20 * time.Second, 1}} {
		s.peers.refresh(c.at)
		for i, want := range []float64{1, 1, c.want} {
			if got := s.At(i).effectiveWeight; math.Abs(got-want) > 1e-9 {
				t.Errorf("at %v: endpoint %d has the weight %v, want %v", c.at, i, got, want)
			}
		}
	}
}

func targetsOf(addrs []string) (out []Target) {
	for _, a := range addrs {
		out = append(out, Target{Addr: a})
	}
	return out
}

// An endpoint starts slowly after each ejection. In a set of two it does, too, although
// the other one then carries more than half.
func TestSlowStartAfterEjection(t *testing.T) {
	for _, p := range policies {
		s := Set{Policy: p, SlowStart: 10 * time.Second, Outlier: outlier.Rules{Consecutive: 1, Base: time.Second, MaxEjected: 0.5}}
		s.Update([]Target{{Addr: "a"}, {Addr: "b"}})
		sick := s.At(0)
		rnd := rand.NewPCG(1, 2)
		share := func(now time.Duration) (share float64) {
			for range 6000 {
				if s.Pick(Query{Now: now, Rand: rnd}) == sick {
					share += 1. / 6000
				}
			}
			return share
		}
		for _, now := range []time.Duration{time.Minute, time.Hour} {
			s.Pick(Query{Now: now, Rand: rnd})
			sick.Judge(now, false)
			sick.Judge(now, true) // it began before the ejection
			now += time.Second
			sick.Judge(now, false) // a bad probe
			if sick.effectiveWeight != 1 {
				t.Errorf("%T: a bad probe makes the weight %v", p, sick.effectiveWeight)
			}
			now += 2 * time.Second
			sick.Judge(now, true) // a good probe
			if sick.effectiveWeight != rampFrom || sick.discount != 1 {
				t.Errorf("%T: just back, the weight is %v with a discount of %v", p, sick.effectiveWeight, sick.discount)
			}
			if got := share(now); got < 0.07 || got > 0.11 {
				t.Errorf("%T: back from an ejection, the share is %.3f, want 0.1 of 1.1", p, got)
			}
			if got := share(now + 10*time.Second); got < 0.47 || got > 0.53 {
				t.Errorf("%T: 10 s later the share is %.3f, want half", p, got)
			}
		}
	}
}

// TestSlowStartTurnedOff checks that a growing endpoint has its full weight from the next
// pick on, even if its growth has not begun.
func TestSlowStartTurnedOff(t *testing.T) {
	for _, p := range policies {
		for _, seen := range []bool{false, true} {
			s := Set{Policy: p, SlowStart: 10 * time.Second}
			s.Update(targetsOf([]string{"a", "b", "c"}))
			rnd := rand.NewPCG(1, 2)
			s.Pick(Query{Now: time.Second, Rand: rnd})
			s.Update(targetsOf([]string{"a", "b", "c", "new"}))
			if seen {
				s.Pick(Query{Now: 2 * time.Second, Rand: rnd})
			}
			s.SlowStart = 0
			s.Retune()
			picks := map[string]int{}
			for range 4000 {
				picks[s.Pick(Query{Now: 3 * time.Second, Rand: rnd}).Addr]++
			}
			for i := range s.Len() {
				e := s.At(i)
				if e.effectiveWeight != 1 || math.IsNaN(e.ramp.part) {
					t.Errorf("%T, its growth seen %t: %s has weight %v of 1", p, seen, e.Addr, e.effectiveWeight)
				}
				if n := picks[e.Addr]; n < 800 || n > 1200 {
					t.Errorf("%T, its growth seen %t: %s is picked %d times of 4000", p, seen, e.Addr, n)
				}
			}
		}
	}
}
