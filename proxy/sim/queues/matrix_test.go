package queues

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	seeds    = flag.Int("seeds", 20, "how often each case runs")
	requests = flag.Int("requests", 20_000, "of each run")
	every    = flag.Int("every", 0, "run every so many of the cases of the matrix; 0 means none")
	page     = flag.String("page", "", "the file for the table of the matrix")
)

// harm is how much longer than without hedging P99 and P99.9 may be.
const harm = 1.05

// row is a case, and what came of it.
type row struct {
	Cell
	ways [Ways]Result
}

// rows runs cases on all processors.
func rows(cells []Cell, ways ...Way) []row {
	out := make([]row, len(cells))
	next := make(chan int)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for i := range next {
				out[i].run(cells[i], ways)
			}
		})
	}
	for i := range cells {
		next <- i
	}
	close(next)
	all.Wait()
	return out
}

func (r *row) run(c Cell, ways []Way) {
	r.Cell = c
	n := Length{Requests: *requests, WarmUp: 3 * time.Second}
	if enough := time.Duration(2 * float64(n.Requests) / c.rate() * float64(time.Second)); enough < n.WarmUp {
		n.WarmUp = enough
	}
	for _, way := range ways {
		for seed := range uint64(*seeds) {
			r.ways[way].Add(Run(c, way, n, seed))
		}
	}
}

// ratio compares the q-quantile of two ways.
func (r *row) ratio(way, with Way, q float64) float64 {
	return float64(r.ways[way].Quantile(q)) / float64(r.ways[with].Quantile(q))
}

func (r *row) harmful() bool { return r.ratio(On, Off, .99) > harm || r.ratio(On, Off, .999) > harm }

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
	}
	if testing.Short() {
		cells = cells[:1]
	}
	for _, r := range rows(cells, Off, On) {
		t.Log(&r)
		if r.harmful() {
			t.Errorf("harm: %v", &r)
		}
		if asked := r.ways[On].Gates; asked == (Result{}).Gates {
			t.Errorf("no hedge was asked for: %v", &r)
		}
	}
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
	for _, r := range rows(cells, Off, On) {
		t.Log(&r)
		if r.ratio(On, Off, .999) > 0.3 {
			t.Errorf("too little is gained: %v", &r)
		}
	}
}

// matrix returns all cases.
func matrix() (all []Cell) {
	for _, replicas := range []int{3, 10, 100} {
		for _, callers := range []int{1, 3, 30} {
			for _, workers := range []int{1, 4, 16, 0} {
				for s := range Services {
					for f := range FreezeKinds {
						for _, busy := range []float64{.3, .5, .7, .8, .9, .95} {
							all = append(all, Cell{Busy: busy, Workers: workers, Service: Service(s), Freezes: Freezes(f), Replicas: replicas, Callers: callers})
						}
					}
				}
			}
		}
	}
	return all
}

// TestMatrix runs the matrix, or a part of it, and writes the table. The whole takes hours.
func TestMatrix(t *testing.T) {
	if *every == 0 {
		t.Skip("no -every")
	}
	var cells []Cell
	for i, c := range matrix() {
		if i%*every == 0 {
			cells = append(cells, c)
		}
	}
	var table strings.Builder
	fmt.Fprintf(&table, "# Hedging in %d cases\n\n", len(cells))
	fmt.Fprintf(&table, "Simulated, %d runs of %d requests each; times in ms. `go test ./proxy/sim/queues -run '^TestMatrix$' -every %d -page FILE`\n", *seeds, *requests, *every)
	table.WriteString("writes this table. Workers 0: no limit. The oracle knows all service times in advance.\n\n")
	table.WriteString("| busy | workers | service | freezes | replicas | callers | off P99 / P99.9 | on | oracle | HAProxy's picks | on ÷ off | extra |\n")
	table.WriteString("|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	harmful := 0
	for _, r := range rows(cells, Off, On, Oracle, HAProxy) {
		if r.harmful() {
			harmful++
			t.Errorf("harm: %v", &r)
		}
		r.write(&table)
	}
	t.Logf("%d cases, harm in %d", len(cells), harmful)
	if *page != "" {
		if err := os.WriteFile(*page, []byte(table.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

func (r *row) write(table *strings.Builder) {
	fmt.Fprintf(table, "| %.0f%% | %d | %v | %v | %d | %d |", 100*r.Busy, r.Workers, r.Service, r.Freezes, r.Replicas, r.Callers)
	for _, way := range []Way{Off, On, Oracle, HAProxy} {
		fmt.Fprintf(table, " %.1f / %.1f |", milliseconds(r.ways[way].Quantile(.99)), milliseconds(r.ways[way].Quantile(.999)))
	}
	fmt.Fprintf(table, " %.2f / %.2f | %.2f%% |\n", r.ratio(On, Off, .99), r.ratio(On, Off, .999), 100*r.ways[On].Extra())
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
