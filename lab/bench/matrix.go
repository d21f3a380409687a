package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/remora-proxy/remora/lab/load"
	"github.com/remora-proxy/remora/lab/replica"
)

// Cell is a case of the real matrix: three replicas with workers and queues, called through one hop.
type Cell struct {
	Busy    float64 // mean share of the workers that work, without hedges and freezes
	Workers int     // requests that a replica serves at once
	Service replica.Service
	Sigma   float64
	Median  time.Duration
	Freezes string // none, independent, together, many short
}

// Cells are the cases of the real matrix. Service times are longer where there are more workers,
// so that one machine can make the load: at most 2,000 requests/s.
func Cells() []Cell {
	const ms = time.Millisecond
	return []Cell{
		{.755, 1, replica.Lognormal, 0.5, ms, "none"}, // 2,000/s
		{.30, 1, replica.Lognormal, 0.5, ms, "independent"},
		{.90, 1, replica.Lognormal, 0.5, 2 * ms, "many short"},
		{.50, 1, replica.Exponential, 0, ms, "together"},
		{.50, 4, replica.Lognormal, 0.5, 5 * ms, "independent"},
		{.70, 4, replica.Lognormal, 1.0, 5 * ms, "none"},
		{.80, 4, replica.Exponential, 0, 5 * ms, "many short"},
		{.70, 16, replica.Lognormal, 0.5, 20 * ms, "independent"},
		{.90, 16, replica.Bimodal, 0.5, 20 * ms, "none"},
		{.38, 1, replica.Lognormal, 0.5, ms, "many short"}, // 1,000/s
	}
}

// matrixReplicas is how many replicas each Cell has.
const matrixReplicas = 3

func (c *Cell) rate() float64 {
	mean := math.Exp(c.Sigma * c.Sigma / 2) // in medians
	if c.Service == replica.Bimodal {
		mean++
	}
	return c.Busy * float64(c.Workers*matrixReplicas) / (mean * c.Median.Seconds())
}

func (c *Cell) String() string {
	service := string(c.Service)
	if c.Sigma > 0 {
		service += fmt.Sprintf(" %.1f", c.Sigma)
	}
	return fmt.Sprintf("%.0f%% busy, workers %d, %s of %v, freezes %s", 100*c.Busy, c.Workers, service, c.Median, c.Freezes)
}

// replicas returns how the replicas of the case are started. All freeze for 2.5% of the time.
func (c *Cell) replicas() replicas {
	mode, mean, long := replica.Stall, "0s", "50ms"
	switch c.Freezes {
	case "independent":
		mean = "1950ms"
	case "together":
		mode, mean = replica.Correlated, "1950ms"
	case "many short":
		mean, long = "195ms", "5ms"
	}
	return replicas{count: matrixReplicas, alike: mode == replica.Correlated, args: []string{
		"--mode", string(mode), "--stall-mean", mean, "--stall-len", long, "--workers", strconv.Itoa(c.Workers),
		"--service", string(c.Service), "--sigma", fmt.Sprint(c.Sigma), "--median", c.Median.String(),
	}}
}

// MatrixRows are the ways of each Cell: by one hop, and with hedging also by two.
func MatrixRows() []Row {
	service := func(hedge string) []string { return []string{"timeout: 2s", "idempotent: true", "hedge: " + hedge} }
	one := func(hedge string) []hop {
		return []hop{sidecar{In: "http", Out: "http", Service: service(hedge)}.hop()}
	}
	return []Row{
		{Name: "off", chain: one("{mode: off}")},
		{Name: "on", chain: one("{mode: on}")},
		{Name: "on-2", chain: mesh(func(consumer, _ *sidecar) { consumer.Service = service("{mode: on}") })},
		{Name: "haproxy", chain: []hop{haproxy}},
	}
}

// matrixRatios are the pairs of ways that are compared.
var matrixRatios = [][2]string{{"on", "off"}, {"on", "haproxy"}, {"on-2", "haproxy"}}

// startTime is ample for the start of a row and the end of its requests.
const startTime = time.Minute

// Matrix measures cells for d each, in o.Rounds rounds, by all rows of MatrixRows in turn. In a
// round all rows of a cell meet the same gaps and freezes. A row that fails has no figures of that round.
func Matrix(ctx context.Context, o Options, cells []Cell, d time.Duration) (*Report, error) {
	o.Rows, o.Kind = MatrixRows(), RealMatrix
	var cases []trial
	for _, c := range cells {
		cases = append(cases, trial{c.String(), load.Options{Rate: c.rate(), Poisson: true}, c.replicas()})
	}
	return o.try(ctx, cases, d)
}

// trial is a case that all rows meet in turn.
type trial struct {
	name     string
	load     load.Options
	replicas replicas
}

// try measures cases for d each, in o.Rounds rounds, by all rows in turn.
func (o Options) try(ctx context.Context, cases []trial, d time.Duration) (*Report, error) {
	if o.Rounds < 1 || len(cases) == 0 || d <= 0 {
		return nil, errors.New("bench: want a round, a case and a time")
	}
	r := &Report{Began: time.Now(), Rounds: o.Rounds, Tools: o.Tools, Machine: describeMachine(ctx, o.Tools), Kind: o.Kind}
	for _, c := range cases {
		r.Loads = append(r.Loads, c.name)
	}
	rows := r.present(o)
	r.mayWatch(&o)
	for round := 1; round <= o.Rounds; round++ {
		for i, c := range cases {
			for _, row := range rows {
				o.Progress(fmt.Sprintf("round %d of %d, case %d of %d, %s: %s, %.0f/s", round, o.Rounds, i+1, len(cases), row.Name, c.name, c.load.Rate))
				row.replicas = c.replicas
				o.Loads = []Load{openLoad(c.name, c.load, tailWarmUp, d)}
				bounded, cancel := context.WithTimeout(ctx, tailWarmUp+d+startTime)
				samples, err := o.measure(bounded, row, round)
				cancel()
				if ctx.Err() != nil {
					return nil, fmt.Errorf("bench: row %s: %w", row.Name, ctx.Err())
				}
				if err != nil {
					o.Progress(row.Name + ": " + err.Error())
					r.Failures = append(r.Failures, Failure{round, row.Name, err.Error()})
					continue
				}
				r.Samples = append(r.Samples, samples...)
			}
			slices.Reverse(rows) // so that a change of the machine favours no row
		}
	}
	r.Machine.Load[1] = loadAverage()
	r.Machine.Tracked = tracked("/proc/sys/net/netfilter/nf_conntrack_count")
	return r, nil
}

// matrixText is the page of a matrix, after the preface of all reports.
func (r *Report) matrixText(preface string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Hedging in %d cases, on real processes\n\n", len(r.Loads))
	b.WriteString("Printed by `scripts/tail.sh --matrix`. Three replicas, which sleep for the service time and serve so many requests at once, are\n" +
		"called through one hop: Remora without hedging (off) and with it (on), and HAProxy with leastconn; on-2 is two sidecars.\n" +
		"Requests come at random moments (Poisson). Replicas freeze for 50 ms every 2 s, or 5 ms every 200 ms (many short). In a round all ways of a case meet\n" +
		"the same moments and freezes.\n\n")
	b.WriteString(preface)
	writeTable(&b, "Cases", r.matrixTable())
	b.WriteString("\n")
	for i, f := range []Figure{P99, P999} {
		longer, shorter, known := 0, 0, 0
		for _, cell := range r.Loads {
			if m := median(r.Samples.Ratios("on", "off", cell, f)); !math.IsNaN(m) {
				known++
				if m > 1.05 {
					longer++
				} else if m < .95 {
					shorter++
				}
			}
		}
		fmt.Fprintf(&b, "%s with hedging: above 1.05 of that without in %d cases, below 0.95 in %d, of %d measured.\n",
			[]string{"P99", "P99.9"}[i], longer, shorter, known)
	}
	return b.String()
}

// matrixTable has a line for each case: medians of the rounds, and ratios taken round by round.
func (r *Report) matrixTable() [][]string {
	head := []string{"case", "requests/s"}
	for _, row := range MatrixRows() {
		head = append(head, row.Name+" p99 ms", "p99.9")
	}
	for _, pair := range matrixRatios {
		head = append(head, pair[0]+" ÷ "+pair[1]+" p99", "p99.9")
	}
	table := [][]string{append(head, "extra load %")}
	plain, ratio := column{format: "%.1f", scale: 1e-3, ranged: true}, column{format: "%.2f", scale: 1, ranged: true}
	rate := column{format: "%.0f", scale: 1}
	for _, cell := range r.Loads {
		line := []string{cell, rate.cell(r.Samples.Values("off", cell, Rate))}
		for _, row := range MatrixRows() {
			for _, f := range []Figure{P99, P999} {
				line = append(line, plain.cell(r.Samples.Values(row.Name, cell, f)))
			}
		}
		for _, pair := range matrixRatios {
			for _, f := range []Figure{P99, P999} {
				line = append(line, ratio.cell(r.Samples.Ratios(pair[0], pair[1], cell, f)))
			}
		}
		table = append(table, append(line, ratio.cell(r.Samples.Values("on", cell, Extra))))
	}
	return table
}
