package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/lab/bench"
)

// lead is enough for 10,000 connections, some of which are tried again after a second.
const lead = 3 * time.Second

// scaleCommand shares the bench's flags of places and of what is written.
func scaleCommand() *cobra.Command {
	var (
		o                bench.ScaleOptions
		flags            benchFlags
		rows, dimensions []string
	)
	cmd := &cobra.Command{
		Use:   "scale",
		Short: "Measure how the sidecar's cost grows",
		Long: `Measure how the sidecar's cost per request and its memory grow with connections, endpoints,
routes, the size of bodies, and loops: one of them at a time, under a closed loop (made by wrk
if it is installed) of 64 connections to 10 endpoints by 1 route, with bodies of 300 bytes and
1 loop a sidecar. At most 1,024 requests are at the replica, others wait in the sidecar.

10,000 connections take some 12,100 descriptors; what the hard limit (ulimit -Hn) does not
allow is left out, and named. Everything that was started is stopped at the end, on Ctrl-C
and on failure. It ends with 1 when a request failed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Rows, err = bench.Choose(rows); err != nil {
				return err
			}
			if o.Dimensions, err = bench.ChooseDimensions(dimensions); err != nil {
				return err
			}
			o.Lead, o.Duration = lead, time.Duration(flags.seconds*float64(time.Second))
			if o.Tools, o.Progress, err = flags.find(cmd); err != nil {
				return err
			}
			r, err := bench.RunScale(cmd.Context(), o)
			if err != nil {
				return err
			}
			return flags.write(cmd, r)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Rounds, "rounds", 1, "how often each point is measured")
	f.StringSliceVar(&rows, "rows", []string{"remora-1", "remora-2"}, "rows to measure, of Remora's own")
	f.StringSliceVar(&dimensions, "dimensions", nil, "what grows (default all): "+dimensionNames())
	f.Float64Var(&flags.seconds, "seconds", 3, "how long each point is measured, after 3 seconds of load")
	f.StringVar(&flags.places.Remora, "remora", "", "the remora binary (default: beside this one, or in PATH)")
	flags.addFiles(cmd)
	return cmd
}

func dimensionNames() string {
	var names []string
	for _, d := range bench.Dimensions() {
		names = append(names, d.Name)
	}
	return strings.Join(names, " ")
}
