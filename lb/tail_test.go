package lb_test

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/hedge"
)

// twoDrawn is LeastPending without the scan of small sets.
type twoDrawn struct{}

func (twoDrawn) Choose(v *lb.View) *lb.Endpoint {
	var eligible []*lb.Endpoint
	for i := range v.Len() {
		if e := v.At(i); v.Eligible(e) {
			eligible = append(eligible, e)
		}
	}
	if len(eligible) < 2 {
		return append(eligible, nil)[0]
	}
	i := int(v.Rand.Uint64() % uint64(len(eligible)))
	j := int(v.Rand.Uint64() % uint64(len(eligible)-1))
	if j >= i {
		j++
	}
	a, b := eligible[i], eligible[j]
	if v.Score(b) < v.Score(a) || v.Score(b) == v.Score(a) && b.Latency() < a.Latency() {
		return b
	}
	return a
}

func atRandom(m *mesh) *lb.Endpoint { return m.set.At(m.rnd.IntN(m.set.Len())) }

func workload(mode hedge.Mode) meshConfig {
	p := hedge.Policy{Quantile: 0.97, MinDelay: time.Millisecond, MaxDelay: 50 * time.Millisecond, Budget: 0.05, Max: 1}
	p.Mode = mode
	return meshConfig{hedge: p, rate: 1000, duration: 65 * time.Second, warmUp: 5 * time.Second}
}

const seeds = 3

// The rows "on paper" of the tail: what the policies alone achieve with replicas that
// freeze, before any network. With virtual time and fixed seeds the figures repeat
// exactly, so the bounds depend on the policies and not on the machine.
func TestTail(t *testing.T) {
	r := runSeeds(workload(hedge.On), seeds)
	t.Log(r.String(), r.gates)
	if p99 := r.quantile(.99); p99 > 3600*time.Microsecond {
		t.Errorf("p99 is %v, want at most 3.6 ms", p99)
	}
	if p999 := r.quantile(.999); p999 > 4900*time.Microsecond {
		t.Errorf("p99.9 is %v, want at most 4.9 ms", p999)
	}
	if p9999 := r.quantile(.9999); p9999 > 20*time.Millisecond {
		t.Errorf("p99.99 is %v, want at most 20 ms", p9999)
	}
	if r.extra > 0.035 {
		t.Errorf("%.2f%% extra load, want at most 3.5%%", 100*r.extra)
	}
}

// A hedge that finds the other replicas busy or stalled, or the budget spent, is tried
// again one delay later. If it is tried only once, some requests wait for a freeze to
// end.
func TestTailAskedOnce(t *testing.T) {
	c := workload(hedge.On)
	c.askOnce = true
	r := runSeeds(c, seeds)
	t.Log(r.String(), r.gates)
	if most := r.quantile(1); most < 20*time.Millisecond {
		t.Errorf("the slowest took %v: the experiment has no effect", most)
	}
}

func TestTailTwoHedges(t *testing.T) {
	c := workload(hedge.On)
	c.hedge.Max = 2
	r := runSeeds(c, seeds)
	t.Log(r.String(), r.gates)
	if most := r.quantile(1); most > 20*time.Millisecond {
		t.Errorf("the slowest took %v, want at most 20 ms", most)
	}
	if r.extra > 0.035 {
		t.Errorf("%.2f%% extra load, want at most 3.5%%", 100*r.extra)
	}
}

// What each part contributes, in the order that the documentation claims.
func TestTailWithout(t *testing.T) {
	worse := func(c meshConfig, q float64, than time.Duration) func(*testing.T) {
		return func(t *testing.T) {
			r := runSeeds(c, seeds)
			t.Log(r.String(), r.gates)
			if d := r.quantile(q); d <= than {
				t.Errorf("the %v-quantile is %v, want it above %v", q, d, than)
			}
		}
	}
	c := workload(hedge.Off)
	t.Run("hedging", worse(c, .999, 40*time.Millisecond))

	c = workload(hedge.Off)
	c.pickAny = atRandom
	t.Run("hedging and least pending", worse(c, .99, 20*time.Millisecond))

	c = workload(hedge.On)
	c.pickAny = atRandom
	t.Run("least pending", worse(c, .999, 6*time.Millisecond))
}

// LeastPending compares all endpoints of a small set: two drawn of three miss the idle
// one often enough to show.
func TestScanBeatsTwoDrawn(t *testing.T) {
	scan := runSeeds(workload(hedge.Off), seeds)
	c := workload(hedge.Off)
	c.policy = twoDrawn{}
	two := runSeeds(c, seeds)
	t.Log("scan", scan.String())
	t.Log("two ", two.String())
	if scan.quantile(.99) >= two.quantile(.99) {
		t.Errorf("p99 of a scan is %v, of two drawn %v", scan.quantile(.99), two.quantile(.99))
	}
}

// A primary whose hedge won must count as slow. If it is left out, the estimate sinks
// and hedges are spent on requests that would have been in time. The picks are random, so that
// hedges have an effect.
func TestLeftOutRunsAway(t *testing.T) {
	c := workload(hedge.On)
	c.pickAny = atRandom
	c.hedge.Budget = 0.2 // a freeze costs many hedges if picks are random
	right := runSeeds(c, seeds)
	c.losers = leftOut
	wrong := runSeeds(c, seeds)
	t.Log("censored", right.String(), right.gates)
	t.Log("left out", wrong.String(), wrong.gates)
	if right.extra > 0.035 {
		t.Errorf("%.2f%% extra load, want at most 3.5%%", 100*right.extra)
	}
	if wrong.extra < 1.5*right.extra || wrong.delay > right.delay*3/4 {
		t.Errorf("leaving the losers out did no harm: the experiment has no effect")
	}
}

// A budget of 5% limits the load even if the quantile asks for more.
func TestBudgetBounds(t *testing.T) {
	c := workload(hedge.On)
	c.hedge.Quantile = 0.90
	r := runSeeds(c, seeds)
	t.Log(r.String(), r.gates)
	burst := 50.0 * seeds // saved during the warm-up
	if r.extra > c.hedge.Budget+burst/float64(len(r.sorted)) {
		t.Errorf("%.2f%% extra load with a budget of 5%%", 100*r.extra)
	}
	if r.gates[hedge.Budget] == 0 {
		t.Error("the budget stopped nothing: the experiment has no effect")
	}
}

// drawnEligible picks at random among the eligible endpoints.
type drawnEligible struct{}

func (drawnEligible) Choose(v *lb.View) *lb.Endpoint {
	for range 50 {
		if e := v.Draw(); v.Eligible(e) {
			return e
		}
	}
	return nil
}

// A frozen replica is avoided as soon as its silence shows, whatever the policy.
// (LeastPending avoids it by its load, unless the others have more.)
func TestTailStallAwareness(t *testing.T) {
	c := workload(hedge.Off)
	c.policy = drawnEligible{}
	aware := runSeeds(c, seeds)
	c.noStall = true
	blind := runSeeds(c, seeds)
	t.Logf("sent to a frozen replica: %d, without stall awareness %d", aware.victims, blind.victims)
	t.Log("aware", aware.String())
	t.Log("blind", blind.String())
	if aware.victims > blind.victims*2/3 || aware.quantile(.99) > blind.quantile(.99)*2/3 {
		t.Errorf("sent to a frozen replica: %d, without stall awareness %d", aware.victims, blind.victims)
	}
}
