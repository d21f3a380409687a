package lb

import (
	"math"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

func three(s *Set) (a, b, c *Endpoint) {
	added, _ := s.Update([]Target{{Addr: "a"}, {Addr: "b"}, {Addr: "c", Weight: 2}})
	return added[0], added[1], added[2]
}

func TestReportFades(t *testing.T) {
	var s Set
	a, b, c := three(&s)
	const latency = 200 * ms
	a.Report(0, Load{Pending: 13, Latency: latency}, 3) // 10 of others
	b.Report(0, Load{Pending: 2, Latency: latency}, 0)
	for _, x := range []struct {
		at      time.Duration
		a, b, c float64 // c has no report: it counts as average
	}{
		{at: 0, a: 10, b: 2, c: 6},
		{at: 50 * ms, a: 8, b: 4, c: 6},
		{at: 100 * ms, a: 6, b: 6, c: 6},
		{at: 999 * ms, a: 6, b: 6, c: 6},
		{at: 1000 * ms},
	} {
		s.peers.reports.expire(x.at, s.peers.all.endpoints)
		for i, e := range []*Endpoint{a, b, c} {
			if got, want := score(e, x.at), []float64{x.a, x.b, x.c}[i]; got != want {
				t.Errorf("%s after %v: %v, want %v", e.Addr, x.at, got, want)
			}
		}
	}
}

func TestReportPerWeight(t *testing.T) {
	var s Set
	a, _, c := three(&s)
	c.Report(0, Load{Pending: 10}, 4)
	c.Start(0)
	c.Start(0)
	if got := score(c, 0); got != 2.0/2+6.0/2 {
		t.Errorf("2 own and 6 of others at weight 2: %v", got)
	}
	if got := score(a, 0); got != 3 {
		t.Errorf("an endpoint without a report: %v, want the mean", got)
	}
	if got := c.load(0); got != 8 {
		t.Errorf("load is %v, want 8", got)
	}
	a.Start(0)
	if got := score(a, 0); got != 4 {
		t.Errorf("an endpoint without a report, with an own request: %v, want one more than the mean", got)
	}
	if a.slowness.factor = 2; score(a, 0) != 5 {
		t.Errorf("its load counts twice: %v, want two more than the mean", score(a, 0))
	}
}

func TestReportNewWeight(t *testing.T) {
	var s Set
	a, b, _ := three(&s)
	a.Report(0, Load{Pending: 8}, 0)
	b.Report(0, Load{Pending: 2}, 0)
	s.Update([]Target{{Addr: "a", Weight: 4}, {Addr: "b"}})
	if score(a, 0) != 2 || score(b, 0) != 2 {
		t.Errorf("scores %v and %v, want 2: the report of a was per its old weight", score(a, 0), score(b, 0))
	}
}

func TestReportExpiry(t *testing.T) {
	s, e := one(t)
	e.Report(sec, Load{Pending: 8}, 0)
	for _, at := range []time.Duration{sec, sec + reportLife - 1, sec + reportLife - 1 + loadFade} {
		if s.peers.reports.n != 1 {
			t.Errorf("before %v the report counts no longer", at)
		}
		s.Pick(Query{Now: at, Rand: rand.NewPCG(1, 1)})
	}
	if s.peers.reports.n != 0 || score(e, sec+2*reportLife) != 0 {
		t.Error("a report counts after reportLife")
	}
}

func TestReportOfLessThanOwn(t *testing.T) {
	_, e := one(t)
	e.Report(0, Load{Pending: 3}, 5) // some own requests are still in flight
	if score(e, 0) != 0 {
		t.Errorf("others have %v", score(e, 0))
	}
	e.Report(0, Load{Pending: 3}, -1)
	if score(e, 0) != 3 {
		t.Errorf("others have %v, want 3", score(e, 0))
	}
}

func TestReportRemoved(t *testing.T) {
	var s Set
	a, b, _ := three(&s)
	a.Report(0, Load{Pending: 4}, 0)
	s.Update([]Target{{Addr: "b"}})
	a.Report(0, Load{Pending: 8}, 0)
	if s.peers.reports.n != 0 || s.peers.reports.others != 0 || score(b, 0) != 0 {
		t.Errorf("a removed endpoint still counts: %d reports, sum %v", s.peers.reports.n, s.peers.reports.others)
	}
}

// TestReportRounding: of reports that count no longer nothing is left, not even rounding errors.
func TestReportRounding(t *testing.T) {
	var s Set
	s.Update(numbered(2, func(int) float64 { return 10 }))
	s.At(0).Report(0, Load{Pending: 1}, 0)
	s.At(1).Report(0, Load{Pending: 2}, 0)
	s.Update(nil)
	if r := s.peers.reports; r.n != 0 || r.others != 0 || r.cost != 0 {
		t.Errorf("%d reports with sums %v and %v", r.n, r.others, r.cost)
	}
}

// The running sum equals the sum of the reports that count.
func TestReportSums(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var s Set
	var now time.Duration
	for range 5000 {
		now += time.Duration(rnd.IntN(100)) * ms
		switch n := rnd.IntN(10); {
		case n == 0:
			var targets []Target
			for i := range rnd.IntN(6) {
				targets = append(targets, Target{Addr: strconv.Itoa(rnd.IntN(8)), Weight: float64(1 + i%2)})
			}
			s.Update(targets)
		case s.Len() > 0:
			s.At(rnd.IntN(s.Len())).Report(now, Load{Pending: rnd.IntN(50)}, rnd.IntN(10))
			s.Pick(Query{Now: now, Rand: rnd})
		}
		reports, sum := 0, 0.0
		for _, e := range s.peers.all.endpoints {
			if e.report.counts {
				reports++
				sum += e.report.others
			}
		}
		if reports != s.peers.reports.n || math.Abs(sum-s.peers.reports.others) > 1e-6 {
			t.Fatalf("%d reports with sum %v, kept as %d and %v", reports, sum, s.peers.reports.n, s.peers.reports.others)
		}
	}
}

func TestReported(t *testing.T) {
	var s Set
	added, _ := s.Update([]Target{{Addr: "a", Weight: 4}})
	e := added[0]
	if n, ok := e.Reported(0); ok || n != 0 {
		t.Errorf("%v is reported before any report", n)
	}
	e.Report(time.Second, Load{Pending: 7, SinceResponse: -1}, 2)
	if n, ok := e.Reported(time.Second); n != 5 || !ok {
		t.Errorf("reported %v, %v; want 5 of others", n, ok)
	}
	if n, ok := e.Reported(2*time.Second - 1); n != 5 || !ok {
		t.Errorf("reported %v, %v within the second", n, ok)
	}
	if n, ok := e.Reported(2 * time.Second); ok || n != 0 {
		t.Errorf("%v is reported after a second", n)
	}
}

// TestBatch: batch attempts are load where no sidecar reports any. Where one does, the report has
// those that do not wait, of this process and of others.
func TestBatch(t *testing.T) {
	var s Set
	a, _, _ := three(&s)
	var process atomic.Int32
	for range 5 {
		a.Start(0)
	}
	a.CountBatch(1)
	if got := a.load(0); got != 5 {
		t.Errorf("one of 5 attempts is batch: load %v", got)
	}
	a.CountBatch(2)
	a.CountIn(&process)
	if got := a.load(0); got != 5 || a.OfProcess() != 2 || process.Load() != 2 {
		t.Errorf("3 of 5 attempts are batch: load %v, own %d, in the process %d; want 5, 2 and 2", got, a.OfProcess(), process.Load())
	}
	a.Report(0, Load{Pending: 7}, a.OfProcess()) // 5 of others, or batch
	if got := a.load(0); got != 7 {
		t.Errorf("load %v with a report of 7", got)
	}
	a.Start(0)
	a.CountBatch(1)
	if got := a.load(0); got != 7 {
		t.Errorf("load %v after one more batch attempt, want 7", got)
	}
	a.CountBatch(-4)
	for range 6 {
		a.Finish(0, 0)
	}
	if a.OfProcess() != 0 || process.Load() != 0 || a.Pending() != 0 {
		t.Errorf("%d of %d attempts are left, %d in the process", a.OfProcess(), a.Pending(), process.Load())
	}
}

// TestUtilizationAverage: a report counts a quarter, and is the first one again once the last one is too old.
func TestUtilizationAverage(t *testing.T) {
	s, e := one(t)
	for _, c := range []struct {
		at                time.Duration
		rate, utilization float64
		want              float64
	}{{0, 100, .5, 200}, {sec, 300, .5, 300}, {2 * sec, 25, .25, 250}, {12 * sec, .4, .5, .8}, {13 * sec, .1, .5, .65}, {14 * sec, maxFull, 1, .65 + (maxFull-.65)/4}} {
		s.Pick(Query{Now: c.at, Rand: rand.NewPCG(1, 2)})
		if e.ReportUtilization(c.at, c.rate, c.utilization); math.Abs(e.utilization.full/c.want-1) > 1e-12 {
			t.Errorf("at %v: %v at full utilization, want %v", c.at, e.utilization.full, c.want)
		}
	}
	for _, bad := range [][2]float64{{1, math.Inf(1)}, {1, -1}, {-1, -1}, {maxFull, .5}, {0, 0}} {
		s, e := one(t)
		if e.ReportUtilization(0, bad[0], bad[1]); e.utilization.full != 0 || s.peers.utilizations.any {
			t.Errorf("a rate of %v at a utilization of %v makes %v", bad[0], bad[1], e.utilization.full)
		}
	}
	s.Update(nil)
	e.ReportUtilization(0, 1, 1) // it has left
}

// TestUtilizationEnds: once its reports are too old, an endpoint has its share of the requests again.
func TestUtilizationEnds(t *testing.T) {
	for now, want := range map[time.Duration][]float64{sec: {1.5, .5, 1}, utilizationLife: {1, 1, 1}} {
		s := utilized(3)
		s.peers.refresh(sec)
		s.peers.refresh(now)
		for i, w := range want {
			if got := s.At(i).effectiveWeight; got != w {
				t.Errorf("at %v: endpoint %d has the weight %v, want %v", now, i, got, w)
			}
		}
	}
}

// TestUtilized: endpoints that report their utilization get requests by what they could serve, within
// bounds, for as long as the reports are fresh.
func TestUtilized(t *testing.T) {
	type said struct{ rate, utilization float64 }
	for name, c := range map[string]struct {
		a, b   said
		weight float64 // of the third endpoint, which reports nothing
		at     time.Duration
		want   [3]int // of 60 picks
	}{
		"by capacity":    {a: said{100, 0.5}, b: said{100, 0.25}, want: [3]int{13, 27, 20}},
		"little":         {a: said{0.2, 0.5}, b: said{0.2, 0.25}, want: [3]int{13, 27, 20}},
		"at full load":   {a: said{300, 1.5}, b: said{100, 0.25}, want: [3]int{13, 27, 20}},
		"bounded":        {a: said{100, 0.01}, b: said{1, 0.9}, want: [3]int{37, 5, 18}}, // 2, 1/4 and 1
		"one alone":      {a: said{100, 0.5}, want: [3]int{20, 20, 20}},
		"old":            {a: said{100, 0.5}, b: said{100, 0.25}, at: 10 * time.Second, want: [3]int{20, 20, 20}},
		"weights differ": {a: said{100, 0.5}, b: said{100, 0.25}, weight: 2, want: [3]int{15, 15, 30}},
		"no rate":        {a: said{0, 0.5}, b: said{100, 0.25}, want: [3]int{20, 20, 20}},
		"no utilization": {a: said{100, 0}, b: said{100, 0.25}, want: [3]int{20, 20, 20}},
		"no numbers":     {a: said{math.NaN(), 1}, b: said{math.Inf(1), 1}, want: [3]int{20, 20, 20}},
		"too large":      {a: said{math.MaxFloat64, 1e-300}, b: said{100, 0.25}, want: [3]int{20, 20, 20}},
	} {
		s := Set{Policy: WeightedRoundRobin{}}
		added, _ := s.Update([]Target{{Addr: "a"}, {Addr: "b"}, {Addr: "c", Weight: max(c.weight, 1)}})
		added[0].ReportUtilization(0, c.a.rate, c.a.utilization)
		added[1].ReportUtilization(0, c.b.rate, c.b.utilization)
		got, rnd := map[*Endpoint]int{}, rand.NewPCG(1, 1)
		for range 60 {
			got[s.Pick(Query{Now: max(c.at, reviewEvery), Rand: rnd})]++
		}
		for i, e := range added {
			if n := got[e]; n < c.want[i]-1 || n > c.want[i]+1 {
				t.Errorf("%s: %s has %d picks, want %d", name, e.Addr, n, c.want[i])
			}
		}
		if c.at > 0 && s.peers.utilizations.any {
			t.Errorf("%s: the set goes on comparing", name)
		}
	}
}
