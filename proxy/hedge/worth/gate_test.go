package worth

import (
	"math/rand/v2"
	"testing"
	"time"
)

const ms = time.Millisecond

// serve simulates n requests, each decided on once after delay, and returns how many were late.
func (g *Gate) serve(n int, draw func() time.Duration, delay time.Duration) (late, hedges int) {
	for range n {
		took := draw()
		if took <= delay {
			continue
		}
		late++
		if !g.Allows() {
			g.Skip()
			continue
		}
		hedges++
		g.CountHedge()
		g.Judge(took, max(0, took-delay-draw()))
	}
	return late, hedges
}

func even(rnd *rand.Rand) func() time.Duration {
	return func() time.Duration { return time.Duration(float64(ms) * (1 + 0.1*rnd.Float64())) }
}

// A service with even latency has no use for hedges, and gets fewer in two steps. When its
// replicas begin to freeze, all late requests are hedged again.
func TestGateSteps(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var g Gate
	calm := even(rnd)
	const delay = ms + ms/11 // a tenth is later
	if late, hedges := g.serve(500, calm, delay); hedges != late || g.OneIn() != 1 {
		t.Fatalf("%d of %d late requests were hedged, then one in %d: too few to judge by", hedges, late, g.OneIn())
	}
	g.serve(5_000, calm, delay)
	const least = 64
	if g.OneIn() != least {
		t.Errorf("hedges save nothing: one in %d late requests is hedged, want one in %d", g.OneIn(), least)
	}
	if late, hedges := g.serve(100_000, calm, delay); hedges > late/least+1 || hedges < late/least-1 {
		t.Errorf("%d of %d late requests were hedged", hedges, late)
	}
	frozen := func() time.Duration {
		if rnd.Float64() < 0.01 {
			return 20 * ms
		}
		return calm()
	}
	g.serve(100_000, frozen, delay)
	if g.OneIn() != 1 {
		t.Errorf("one in ten hedges saves 18 ms: one in %d late requests is hedged", g.OneIn())
	}
}

// TestUnknown checks that requests count only where what hedges save is known.
func TestUnknown(t *testing.T) {
	inVain := func(g *Gate) { g.Judge(ms, 0) }
	saves := func(g *Gate) { g.Judge(1000*ms, 1) }
	type step struct {
		do    func(g *Gate)
		times int
		oneIn int
	}
	for name, steps := range map[string][]step{
		"hedges save nothing":                  {{inVain, 64, 8}},
		"nobody knows what they save":          {{(*Gate).Unknown, 1, 1}, {inVain, 1000, 1}},
		"it is known again":                    {{(*Gate).Unknown, 1, 1}, {saves, 1, 1}, {inVain, 64, 8}},
		"a few are unknown where they are few": {{inVain, 64, 8}, {(*Gate).Unknown, model.fewer - 1, 8}, {saves, 1, 8}, {(*Gate).Unknown, 1, 8}},
		"many are unknown where they are few":  {{inVain, 1000, 64}, {(*Gate).Unknown, model.fewer, 1}, {(*Gate).Unknown, 1000, 1}, {inVain, 1000, 1}},
	} {
		var g Gate
		for i, s := range steps {
			for range s.times {
				s.do(&g)
			}
			if g.OneIn() != s.oneIn {
				t.Errorf("%s: after step %d one in %d decisions may hedge, want one in %d", name, i, g.OneIn(), s.oneIn)
			}
		}
	}
}

// TestJudge: when hedges become fewer, and when more.
func TestJudge(t *testing.T) {
	type step struct {
		took, saved time.Duration
		times       int
		oneIn       int
	}
	for name, steps := range map[string][]step{
		"nothing is saved":                 {{ms, 0, 63, 1}, {ms, 0, 1, 8}, {ms, 0, 15, 8}, {ms, 0, 1, 64}, {ms, 0, 1000, 64}},
		"too little for all, not for half": {{128 * ms, ms, 90, 1}, {128 * ms, ms, 7, 8}},
		"just enough":                      {{96 * ms, ms, 1000, 1}},
		"enough":                           {{95 * ms, ms, 1000, 1}},
		"enough for more":                  {{ms, 0, 64, 8}, {48 * ms, ms, 31, 8}, {48 * ms, ms, 1, 1}},
		"enough for these, not for more":   {{ms, 0, 64, 8}, {49 * ms, ms, 1000, 8}},
	} {
		var g Gate
		for i, s := range steps {
			for range s.times {
				g.Judge(s.took, s.saved)
			}
			if g.OneIn() != s.oneIn {
				t.Errorf("%s: after step %d one in %d decisions may hedge, want one in %d", name, i, g.OneIn(), s.oneIn)
			}
		}
	}
	var g Gate
	for range 256 {
		g.Unknown()
	}
	for range 1000 {
		g.Judge(ms, 0)
	}
	if g.OneIn() != 1 {
		t.Errorf("one in %d decisions may hedge, although nobody knows what hedges save", g.OneIn())
	}
}
