package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/lab/bench"
)

func frontierCommand() *cobra.Command {
	c := comparison{all: bench.FrontierRows(), Options: bench.Options{Kind: bench.Frontiers}}
	cmd := c.command("frontier", "Measure what each budget of extra load buys, beside Envoy's hedging",
		`Measure what each budget of extra load buys, beside Envoy's hedging.

In each shape three replicas are called through two of Remora's sidecars without hedging (off) and
with budgets of 1 to 20% extra load, through Envoy without hedging and with a hedge after
each of several delays, and through HAProxy. All ways run in turn, round after round, and meet the
same freezes. The last table compares each budget with the best of Envoy's delays that took no
more extra load.

The exit status is 1 if a request through a sidecar failed.`)
	var names, chosen []string
	shapes := bench.Shapes()
	for _, s := range shapes {
		names = append(names, s.Name)
	}
	c.measure = func(ctx context.Context, o bench.Options, length time.Duration) (*bench.Report, error) {
		for _, name := range chosen {
			if !slices.Contains(names, name) {
				return nil, fmt.Errorf("unknown shape %q: want some of %s", name, strings.Join(names, ", "))
			}
		}
		return bench.Frontier(ctx, o, slices.DeleteFunc(shapes, func(s bench.Shape) bool {
			return len(chosen) > 0 && !slices.Contains(chosen, s.Name)
		}), length)
	}
	f := cmd.Flags()
	f.Float64Var(&c.seconds, "seconds", 10, "length of each measurement")
	f.StringSliceVar(&chosen, "shapes", nil, "shapes to measure (default all): "+strings.Join(names, ", "))
	f.Uint64Var(&c.Seed, "seed", 0, "other freezes")
	f.BoolVar(&c.Watch, "steal", false,
		"leave out requests that a stop of a processor disturbed (see remora-lab load --help)")
	return cmd
}
