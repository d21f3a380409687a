package bench

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/remora-proxy/remora/lab/load"
)

// Shape is a case of the frontier: three replicas, and what makes some of their responses late.
type Shape struct {
	Name     string
	Rate     float64 // requests per second
	replicas replicas
}

// Shapes are all cases of the frontier.
func Shapes() []Shape {
	three := func(args ...string) replicas {
		return replicas{count: 3, args: append([]string{"--mode", "stall", "--stall-mean", "0s"}, args...)}
	}
	slow := three("--median", "1ms")
	slow.first = []string{"--median", "10ms"}
	return []Shape{
		{"freezes", 1000, three("--median", "1ms", "--stall-mean", "2s", "--stall-len", "50ms")},
		{"5% stragglers", 600, three("--median", "4.6ms", "--stragglers", "0.05", "--straggler-len", "45ms")},
		{"2% stragglers", 600, three("--median", "4.6ms", "--stragglers", "0.02", "--straggler-len", "45ms")},
		{"one slow replica", 1000, slow},
		{"heavy tail", 1000, three("--median", "1ms", "--sigma", "1")},
	}
}

// frontierBudgets are the shares of extra load that Remora may send.
var frontierBudgets = []float64{0.01, 0.02, 0.05, 0.1, 0.2}

// frontierDelays are those of Envoy's hedges. Envoy has no rule that finds the best.
var frontierDelays = []time.Duration{
	3 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 15 * time.Millisecond, 25 * time.Millisecond,
}

// FrontierRows are the ways of each Shape: two of Remora's sidecars without hedging and with each
// budget, one Envoy without hedging and with each delay, and HAProxy.
func FrontierRows() []Row {
	hedged := func(hedge string) []hop {
		return mesh(func(consumer, _ *sidecar) {
			consumer.Service = []string{"timeout: 2s", "idempotent: true", "hedge: " + hedge}
		})
	}
	rows := []Row{{Name: "off", chain: hedged("{mode: off}")}}
	for _, budget := range frontierBudgets {
		rows = append(rows, Row{Name: fmt.Sprintf("budget-%.0f%%", 100*budget), chain: hedged(fmt.Sprintf("{mode: on, budget: %g}", budget))})
	}
	rows = append(rows, Row{Name: "envoy", chain: []hop{envoy}})
	for _, after := range frontierDelays {
		rows = append(rows, Row{Name: "envoy-" + after.String(), chain: []hop{envoyHedging(after)}})
	}
	return append(rows, Row{Name: "haproxy", chain: []hop{haproxy}})
}

// Frontier measures shapes for d each, in o.Rounds rounds, by o.Rows of FrontierRows in turn. In a
// round all rows of a shape meet the same freezes. A row that fails has no figures of that round.
func Frontier(ctx context.Context, o Options, shapes []Shape, d time.Duration) (*Report, error) {
	o.Kind = Frontiers
	var cases []trial
	for _, s := range shapes {
		cases = append(cases, trial{s.Name, load.Options{Rate: s.Rate}, s.replicas})
	}
	return o.try(ctx, cases, d)
}

var frontierColumns = []column{
	{"extra load %", Extra, "%.2f", 1, true, false},
	{"p50 ms", P50, "%.2f", 1e-3, true, false},
	{"p99", P99, "%.2f", 1e-3, true, false},
	{"p99.9", P999, "%.1f", 1e-3, true, false},
	{"hedges", Hedges, "%.0f", 1, false, false},
	{"won", HedgesWon, "%.0f", 1, false, false},
}

// frontierTable compares each budget with the Envoy that has the least of a figure at no more
// extra load than that budget took.
func (r *Report) frontierTable() [][]string {
	table := [][]string{{"shape", "row", "p99 ÷ best of Envoy", "that Envoy", "p99.9 ÷ best of Envoy", "that Envoy"}}
	of := func(row, shape string, f Figure) float64 { return median(r.Samples.Values(row, shape, f)) }
	for _, shape := range r.Loads {
		for _, row := range r.Rows {
			if !strings.HasPrefix(row, "budget-") {
				continue
			}
			line := []string{shape, row}
			for _, f := range []Figure{P99, P999} {
				best, name := math.NaN(), ""
				for _, peer := range r.Rows {
					if !strings.HasPrefix(peer, "envoy") || of(peer, shape, Extra) > of(row, shape, Extra)+extraNoise {
						continue
					}
					if v := of(peer, shape, f); !(v >= best) {
						best, name = v, peer
					}
				}
				if name != "" {
					line = append(line, fmt.Sprintf("%.2f", of(row, shape, f)/best), name)
				}
			}
			if len(line) == len(table[0]) {
				table = append(table, line)
			}
		}
	}
	return table
}

// extraNoise is how much extra load, in percent, two rows may differ by and count as equal.
const extraNoise = 0.1
