package queues

import (
	"flag"
	"fmt"
	"math"
	"testing"
	"time"
)

var (
	seeds    = flag.Int("seeds", 20, "how often each case runs")
	requests = flag.Int("requests", 20_000, "of each run")
	every    = flag.Int("every", 0, "run one of so many cases of the matrix; 0 means a small part, with few seeds")
	from     = flag.Int("from", 0, "the first case that runs, below -every: so other cases run each time")
	page     = flag.String("page", "", "the file for the page about the matrix; its plots and cells go into the folder of this name without .md")
	redraw   = flag.Bool("redraw", false, "write the page anew from its cells, and run nothing")
)

// harm is how much longer than without hedging P99 and P99.9 may be.
const harm = 1.05

// row is a case, and what came of it.
type row struct {
	Cell
	ways [allWays]*Result

	parts [allWays][]*Result // of ways, by seed; those that have run
}

// plan is how much of a case is run.
type plan struct {
	seeds, requests int           // runs, and the requests of each
	least           time.Duration // of a run; where requests come faster, it has more of them
	early           int           // seeds after which it ends if it is sure; 0 means that it runs all
	most            int           // requests of all runs; until then it goes on while not sure
	way, with       Way           // if it harms is not sure
}

// length returns the length of a run of a case.
func (p plan) length(c *Cell) Length {
	n := Length{Requests: max(p.requests, int(c.rate()*p.least.Seconds())), WarmUp: 3 * time.Second}
	if enough := time.Duration(2 * float64(n.Requests) / c.rate() * float64(time.Second)); enough < n.WarmUp {
		n.WarmUp = enough
	}
	return n
}

// endsEarly reports whether a case may end after p.early seeds: it has as many requests then as others have in the end.
// Where replicas freeze together, most of so short runs have no freeze.
func (p plan) endsEarly(c *Cell, n Length) bool {
	return p.early > 0 && p.early*n.Requests >= p.seeds*p.requests && c.Freezes != Together
}

// newRow runs a case with each seed, and with further seeds and longer runs as long as it is not
// sure whether hedging harms, up to p.most. If it is sure after p.early seeds, it runs no others.
func newRow(c Cell, p plan, ways []Way) *row {
	r := &row{Cell: c}
	n := p.length(&c)
	for _, way := range ways {
		r.ways[way] = NewResult()
	}
	for seed := 0; ; {
		for part := range p.seeds {
			for _, way := range ways {
				if part == len(r.parts[way]) {
					r.parts[way] = append(r.parts[way], NewResult())
				}
				got := Run(c, way, n, uint64(seed))
				r.parts[way][part].Add(got)
				r.ways[way].Add(got)
			}
			if seed++; seed == p.early && p.endsEarly(&c, n) && r.sure(p.way, p.with, earlyErrors) {
				return r
			}
		}
		if r.ways[ways[0]].Requests >= p.most || r.sure(p.way, p.with, sureErrors) {
			return r
		}
		n.Requests *= 2
	}
}

// ratio compares the q-quantile of two ways.
func (r *row) ratio(way, with Way, q float64) float64 {
	return float64(r.ways[way].Quantile(q)) / float64(r.ways[with].Quantile(q))
}

// A case is on one side of harm for sure if the ratio is so many standard errors away: for 20 seeds, and for 8, whose
// standard error is less exact. In 97.5% of such cases the true ratio is on that side (Student's t distribution with 19 and 7
// degrees of freedom).
const (
	sureErrors  = 2.1
	earlyErrors = 2.4
)

// sure reports whether chance does not decide if P99 and P99.9 of a way are above harm, beside another: the ratio is
// that many standard errors away.
func (r *row) sure(way, with Way, errors float64) bool {
	for _, q := range [...]float64{.99, .999} {
		if math.Abs(r.ratio(way, with, q)-harm) < errors*r.deviation(way, with, q) {
			return false
		}
	}
	return true
}

// deviation estimates the standard error of ratio by the jackknife: what it would be if one seed
// were left out (Efron and Stein, "The Jackknife Estimate of Variance", 1981).
func (r *row) deviation(way, with Way, q float64) float64 {
	a, b := without(r.parts[way], q), without(r.parts[with], q)
	n := float64(len(a))
	sum, squares := 0.0, 0.0
	for i := range a {
		x := a[i] / b[i]
		sum += x
		squares += x * x
	}
	return math.Sqrt((n - 1) * max(0, squares/n-sum/n*sum/n))
}

// without returns the q-quantile of all parts but one, for each.
func without(parts []*Result, q float64) []float64 {
	out := make([]float64, len(parts))
	before := NewResult()
	for i := range parts {
		others := NewResult()
		others.Add(before)
		for _, o := range parts[i+1:] {
			others.Add(o)
		}
		out[i] = float64(others.Quantile(q))
		before.Add(parts[i])
	}
	return out
}

// worst returns the larger ratio of P99 and P99.9 with hedging to those without.
func (r *row) worst() float64 { return max(r.ratio(On, Off, .99), r.ratio(On, Off, .999)) }

func (r *row) String() string {
	return fmt.Sprintf("%v: P99 %.2f and P99.9 %.2f of those without, %.2f%% extra, gates %v",
		r.Cell, r.ratio(On, Off, .99), r.ratio(On, Off, .999), 100*r.ways[On].Extra(), r.ways[On].Gates)
}

// TestNoHarm runs cases in which hedges once made the tail two to four times as long: replicas of
// few workers that are busy.
func TestNoHarm(t *testing.T) {
	cells := []Cell{
		{Busy: .76, Workers: 1, Service: Lognormal05, Replicas: 3, Callers: 1},
		{Busy: .90, Workers: 1, Service: Lognormal05, Freezes: ManyShort, Replicas: 3, Callers: 1},
		{Busy: .90, Workers: 16, Service: Exponential, Freezes: ManyShort, Replicas: 3, Callers: 3},
		{Busy: .95, Workers: 16, Service: Lognormal05, Replicas: 3, Callers: 30},
		{Busy: .90, Workers: 1, Service: Lognormal05, Replicas: 10, Callers: 3},
		{Busy: .95, Workers: 1, Service: Lognormal10, Freezes: ManyShort, Replicas: 10, Callers: 30},
		{Busy: .95, Workers: 4, Service: Lognormal05, Freezes: Independent, Replicas: 3, Callers: 30},
		{Busy: .95, Workers: 16, Service: Exponential, Freezes: Independent, Replicas: 3, Callers: 1},
	}
	if testing.Short() {
		cells = cells[:1]
	}
	rows(cells, plan{seeds: *seeds, requests: *requests, most: 1_000_000, way: On, with: Off}, func(_ int, r *row) {
		t.Log(r)
		if r.worst() > harm {
			t.Errorf("harm: %v", r)
		}
		if asked := r.ways[On].Gates; asked == (Result{}).Gates {
			t.Errorf("no hedge was asked for: %v", r)
		}
	}, Off, On)
}

// TestGainStays: where replicas freeze one by one and the others have room, hedges take away
// most of the tail.
func TestGainStays(t *testing.T) {
	cells := []Cell{
		{Busy: .50, Workers: 4, Service: Lognormal05, Freezes: Independent, Replicas: 3, Callers: 3},
		{Busy: .30, Workers: 1, Service: Lognormal05, Freezes: Independent, Replicas: 3, Callers: 1},
		{Busy: .70, Workers: 4, Service: Lognormal05, Freezes: Independent, Replicas: 10, Callers: 3},
		{Busy: .50, Workers: 4, Service: Lognormal05, Freezes: Independent, Replicas: 10, Callers: 30},
		{Busy: .30, Workers: 4, Service: Exponential, Freezes: Independent, Replicas: 3, Callers: 3},
	}
	if testing.Short() {
		cells = cells[:1]
	}
	rows(cells, plan{seeds: *seeds, requests: *requests}, func(_ int, r *row) {
		t.Log(r)
		if r.ratio(On, Off, .999) > 0.3 {
			t.Errorf("too little is gained: %v", r)
		}
	}, Off, On)
}

// The axes of the matrix, besides the services and the freezes.
var (
	allReplicas = []int{3, 10, 100}
	allCallers  = []int{1, 3, 30}
	allWorkers  = []int{1, 4, 16, 0}
	allBusy     = []float64{.3, .5, .7, .8, .9, .95}
)

// worse is how much longer than with HAProxy's picks P99 and P99.9 may be.
const worse = 1.15

// TestPicks runs cases in which picks that know the reports of all once were worse than HAProxy's,
// which know only the caller's own requests: P99 or P99.9 was 1.2 to 1.7 times as long, in the last
// two cases 1.8 to 4 times.
func TestPicks(t *testing.T) {
	cells := []Cell{
		{Busy: .95, Workers: 1, Service: Exponential, Freezes: ManyShort, Replicas: 10, Callers: 30},
		{Busy: .30, Workers: 0, Service: Lognormal10, Freezes: Independent, Replicas: 10, Callers: 30},
		{Busy: .95, Workers: 4, Service: Lognormal05, Freezes: Independent, Replicas: 3, Callers: 30},
		{Busy: .95, Workers: 16, Service: Exponential, Freezes: Independent, Replicas: 3, Callers: 1},
	}
	rows(cells, plan{seeds: *seeds, requests: *requests}, func(_ int, r *row) {
		p99, p999 := r.ratio(Off, HAProxy, .99), r.ratio(Off, HAProxy, .999)
		t.Logf("%v: P99 %.2f and P99.9 %.2f of those of HAProxy", r.Cell, p99, p999)
		if p99 > worse || p999 > worse {
			t.Errorf("worse than HAProxy: %v: P99 %.2f, P99.9 %.2f", r.Cell, p99, p999)
		}
	}, Off, HAProxy)
}

// matrix returns all cases.
func matrix() (all []Cell) {
	for _, replicas := range allReplicas {
		for _, callers := range allCallers {
			for _, workers := range allWorkers {
				for s := range Services {
					for f := range FreezeKinds {
						for _, busy := range allBusy {
							all = append(all, Cell{Busy: busy, Workers: workers, Service: Service(s), Freezes: Freezes(f), Replicas: replicas, Callers: callers})
						}
					}
				}
			}
		}
	}
	return all
}

// strided returns each n-th case, from the case -from on.
func strided(n int) (some []Cell) {
	for i, c := range matrix() {
		if i%n == *from%n {
			some = append(some, c)
		}
	}
	return some
}

// A part is what TestMatrix runs without -every: cases far apart, each a few times. P99.9 of so few
// requests moves by some per cent when one hedge falls elsewhere: so the limits are wider.
const (
	partEvery = 139 // prime, so that all values of all axes occur
	partSeeds = 3
	partHarm  = 1.15
)

// In the whole matrix a run has at least leastRun. A case that is sure after earlySeeds may end then. A case that is not sure
// has at most twice mostRequests.
const (
	leastRun     = 250 * time.Millisecond
	earlySeeds   = 8
	mostRequests = 20_000_000
)

// TestMatrix runs the matrix, or a part of it, and judges each case. With -page it writes the page.
// The whole takes hours.
func TestMatrix(t *testing.T) {
	if *redraw {
		if err := redrawPage(*page); err != nil {
			t.Fatal(err)
		}
		return
	}
	every, limit := *every, harm
	p := plan{seeds: *seeds, requests: *requests, least: leastRun, early: earlySeeds, most: mostRequests, way: On, with: Off}
	if every == 0 {
		every, p, limit = partEvery, plan{seeds: partSeeds, requests: *requests}, partHarm
		if testing.Short() {
			every = 3 * partEvery
		}
	}
	cells := strided(every)
	all := make([]outcome, len(cells))
	harmful, gained, done := 0, 0, 0
	rows(cells, p, func(i int, r *row) {
		all[i] = r.outcome()
		if r.worst() > limit {
			harmful++
			t.Errorf("harm: %v", r)
		}
		if r.ratio(On, Off, .999) < .7 {
			gained++
		}
		// While replicas freeze one by one it fills the others, for the sake of P99.9.
		if r.ratio(Oracle, Off, .99) > 1.02 && r.ratio(Oracle, Off, .999) > 1.02 {
			t.Errorf("the oracle is worse than no hedging: %v", r)
		}
		burst := float64(10*r.Callers) / float64(p.requests) // the tokens that a caller has at first
		if extra := r.ways[On].Extra(); extra > Policy.Budget+burst {
			t.Errorf("the extra load is above the budget: %v", r)
		}
		if done++; testing.Verbose() && done%max(1, len(cells)/100) == 0 {
			t.Logf("%d of %d cases", done, len(cells))
		}
	}, Off, On, Oracle, HAProxy)
	t.Logf("%d cases, harm in %d, P99.9 down by 30%% in %d", len(cells), harmful, gained)
	if gained == 0 {
		t.Error("nothing is gained anywhere")
	}
	if *page != "" {
		how := fmt.Sprintf("%d runs of at least %d requests each, and more as long as it is not sure on which side of 1.05 a case is: both ratios\n"+
			"are at least %.1f standard errors away, or there are %d million requests. A case of many requests ends after %d runs if it is\n"+
			"sure by %.1f standard errors then, unless all replicas freeze together.\n"+
			"`%s -every %d`\nwrites this page, the whole in hours; with `-redraw` too, at once, only anew from its cells.",
			p.seeds, p.requests, sureErrors, p.most/1_000_000, p.early, earlyErrors, regenerate, every)
		if err := writePage(*page, how, all); err != nil {
			t.Fatal(err)
		}
	}
}
