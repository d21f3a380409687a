package fleet

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// simulated is a fleet of which some sidecars run revision 2, with log-normal latencies.
type simulated struct {
	head  Head
	nodes []string
	hist  []stats.Histogram
	slow  float64 // factor of the latencies with revision 2
	rand  *rand.Rand
}

func simulate(t *testing.T, size int, to string, slow float64, seed uint64) *simulated {
	t.Helper()
	s := &simulated{nodes: nodes(size), hist: make([]stats.Histogram, size), slow: slow, rand: rand.New(rand.NewPCG(seed, 1))}
	target := mustTarget(t, to).Among(s.nodes)
	s.head = Head{Newest: 2, Stable: 1, Candidate: 2, To: target, Change: Change{At: time.Unix(1700000000, 0)}}
	return s
}

// serve makes each sidecar serve n requests.
func (s *simulated) serve(n int) {
	for i := range s.nodes {
		factor := 1.0
		if s.head.RevisionOf(s.nodes[i], nil) == 2 {
			factor = s.slow
		}
		for range n {
			s.hist[i].Observe(time.Duration(factor * float64(4*time.Millisecond) * math.Exp(s.rand.NormFloat64()/2)))
		}
	}
}

func (s *simulated) statuses() (all []Status) {
	for i, n := range s.nodes {
		all = append(all, Status{
			Node: n, Revision: s.head.RevisionOf(n, nil), Change: s.head.Change.At,
			Services: map[string]Service{"app": {Requests: s.hist[i].Count(), Latency: LatencyOf(&s.hist[i])}},
		})
	}
	return all
}

// judge compares statuses.
func judge(g *Guard, h *Head, all []Status) (why string) {
	c := Compare(h)
	for i := range all {
		c.Add(&all[i])
	}
	return g.Judge(c)
}

func mustGuard(t *testing.T, text string) *Guard {
	t.Helper()
	g, err := ParseGuard(text)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestGuardStops: 30 sidecars, of which 20% run a revision that makes requests slower. The guard says so after few
// looks.
func TestGuardStops(t *testing.T) {
	for _, slow := range []float64{1.3, 2, 10} {
		for seed := range uint64(5) {
			s, g, looks := simulate(t, 30, "20%", slow, seed), mustGuard(t, "p99 <= 1.05x"), 0
			why := ""
			for ; why == "" && looks < 60; looks++ {
				s.serve(500)
				why = judge(g, &s.head, s.statuses())
			}
			if !strings.Contains(why, "service app: p99 is ") || !strings.Contains(why, "on 6 sidecars with revision 2") || !strings.Contains(why, "on 24 without") {
				t.Errorf("%gx, seed %d: after %d looks: %q", slow, seed, looks, why)
			}
		}
	}
}

// TestGuardLetsPass: a revision that changes nothing, or makes requests faster, stays, however often the guard looks.
func TestGuardLetsPass(t *testing.T) {
	for _, slow := range []float64{1, 0.8} {
		for seed := range uint64(20) {
			s, g := simulate(t, 30, "20%", slow, seed), mustGuard(t, "p99 <= 1x")
			for look := range 200 {
				s.serve(50)
				if why := judge(g, &s.head, s.statuses()); why != "" {
					t.Errorf("%gx, seed %d, look %d: %s", slow, seed, look, why)
					break
				}
			}
		}
	}
}

// TestGuardCompares: only sidecars of this roll-out count, and only with enough requests on both sides.
func TestGuardCompares(t *testing.T) {
	s, g := simulate(t, 30, "20%", 10, 1), mustGuard(t, "p99 <= 1.05x")
	s.serve(500)
	judged := func(change func(*Status)) string {
		all := s.statuses()
		for i := range all {
			change(&all[i])
		}
		return judge(g, &s.head, all)
	}
	isNew := func(st *Status) bool { return st.Revision == 2 }
	for name, c := range map[string]struct {
		change func(*Status)
		stops  bool
	}{
		"all":                     {func(*Status) {}, true},
		"of an earlier change":    {func(st *Status) { st.Change = st.Change.Add(-time.Second) }, false},
		"new ones of an earlier":  {func(st *Status) { st.Change = st.Change.Add(-time.Second * time.Duration(st.Revision-1)) }, false},
		"others of another":       {func(st *Status) { st.Revision += 2 }, false},
		"no other":                {func(st *Status) { st.Revision = 2 }, false},
		"none with it":            {func(st *Status) { st.Revision = 1 }, false},
		"few requests with it":    {func(st *Status) { few(st, isNew(st)) }, false},
		"few requests without it": {func(st *Status) { few(st, !isNew(st)) }, false},
		"other services": {func(st *Status) {
			if isNew(st) {
				st.Services = map[string]Service{"other": st.Services["app"]}
			}
		}, false},
		"no latencies": {func(st *Status) { st.Services = map[string]Service{"app": {}} }, false},
		"huge numbers": {func(st *Status) {
			st.Services = map[string]Service{"app": {Requests: math.MaxUint64, Failed: math.MaxUint64, Latency: Latency{math.MaxUint64, math.MaxUint64}}}
		}, false},
		"many buckets":  {func(st *Status) { st.Services = map[string]Service{"app": {Latency: make(Latency, 5000)}} }, false},
		"only the last": {func(st *Status) { st.Services = map[string]Service{"app": {Latency: lastOnly()}} }, false},
	} {
		if why := judged(c.change); (why != "") != c.stops {
			t.Errorf("%s: %q", name, why)
		}
	}
}

// TestComparisonIsBounded: statuses with ever other services make no more sides than the bound, and none for long names. The
// services that came before are compared on.
func TestComparisonIsBounded(t *testing.T) {
	s, g := simulate(t, 30, "20%", 10, 1), mustGuard(t, "p99 <= 1.05x")
	s.serve(500)
	c := Compare(&s.head)
	for i, st := range s.statuses() {
		c.Add(&st)
		for j := range 1000 {
			c.Add(&Status{Revision: st.Revision, Change: st.Change, Services: map[string]Service{
				fmt.Sprintf("other%d-%d", i, j):                       {},
				strings.Repeat("x", maxName+1) + fmt.Sprint(i*1000+j): {},
			}})
		}
	}
	if len(c.services) != maxCompared {
		t.Errorf("%d services, want %d", len(c.services), maxCompared)
	}
	for name := range c.services {
		if len(name) > maxName {
			t.Fatalf("a name of %d bytes is compared", len(name))
		}
	}
	if why := g.Judge(c); !strings.Contains(why, "service app: p99 is ") || !strings.Contains(why, "on 6 sidecars with revision 2") {
		t.Errorf("%q", why)
	}
}

// TestGuardFailures: a revision with which more requests fail does not stay because these are fast.
func TestGuardFailures(t *testing.T) {
	for _, c := range []struct {
		with, without, requests uint64 // failures on each sidecar
		stops                   bool
	}{
		{0, 0, 1000, false}, {1000, 0, 1000, true}, {20, 0, 1000, true}, {1, 0, 1000, false}, {10, 10, 1000, false}, {12, 10, 1000, false},
		{30, 10, 1000, true}, {5, 10, 1000, false}, {2, 0, 2, true}, {1000, 1000, 1000, false}, {5000, 0, 1000, true}, {0, 0, 0, false},
	} {
		s, g := simulate(t, 30, "20%", 1, 1), mustGuard(t, "p99 <= 1.05x")
		all := s.statuses()
		for i := range all {
			failed := c.without
			if all[i].Revision == 2 {
				failed = c.with
			}
			all[i].Services = map[string]Service{"app": {Requests: c.requests, Failed: failed}}
		}
		if why := judge(g, &s.head, all); (why != "") != c.stops || c.stops && !strings.Contains(why, "of requests fail on 6 sidecars") {
			t.Errorf("%+v: %q", c, why)
		}
	}
}

// few leaves a status with few requests.
func few(st *Status, really bool) {
	if really {
		st.Services = map[string]Service{"app": {Latency: Latency{1}}}
	}
}

func lastOnly() Latency {
	l := make(Latency, stats.HistogramBuckets)
	l[len(l)-1] = 1 << 20
	return l
}

// TestLatencies compares quantiles and shares with those of evenly spread requests.
func TestLatencies(t *testing.T) {
	var h stats.Histogram
	for us := 1; us <= 100_000; us++ {
		h.Observe(time.Duration(us) * time.Microsecond)
	}
	var l latencies
	l.add(LatencyOf(&h))
	for _, q := range []float64{.01, .5, .9, .99, .999} {
		want := time.Duration(q * float64(100*time.Millisecond))
		got, ok := l.quantile(q)
		if share := l.later(want); !ok || (got-want).Abs() > 20*time.Microsecond || math.Abs(share-(1-q)) > 1e-3 {
			t.Errorf("%v: %v, %v; later than %v: %v", q, got, ok, want, share)
		}
	}
	if _, ok := new(latencies).quantile(.5); ok {
		t.Error("a quantile of nothing")
	}
	if got := l.later(time.Hour); got != 0 {
		t.Errorf("later than an hour: %v", got)
	}
}

// TestSince: counts since earlier ones.
func TestSince(t *testing.T) {
	before := Service{Requests: 10, Failed: 1, Hedges: 4, Missed: 1, Won: 2, Latency: Latency{1, 2, 7}}
	now := Service{Requests: 15, Failed: 1, Hedges: 5, Missed: 1, Won: 3, Latency: Latency{1, 2, 9, 3}}
	if got, want := fmt.Sprint(now.Since(before)), fmt.Sprint(Service{Requests: 5, Hedges: 1, Won: 1, Latency: Latency{0, 0, 2, 3}}); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
