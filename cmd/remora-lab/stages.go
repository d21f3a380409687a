package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/lab/stages"
)

func stagesCommand() *cobra.Command {
	var (
		o        stages.Options
		sidecars []string
	)
	cmd := &cobra.Command{
		Use:   "stages URL",
		Short: "Measure how much of what is possible a number of waiting callers gets",
		Long: `Measure how much of what is possible a number of waiting callers gets.

Each connection sends a GET as soon as it has its answer. With calls that take --delay, n
connections can't get more than n / --delay answers a second: the ceiling. Prints what was
reached at each number of connections as a Markdown table, with the CPU time that each
sidecar took for an answer, and as the score the best of the rates; answers other than 2xx
do not count.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.URL = args[0]
			for _, s := range sidecars {
				name, admin, ok := strings.Cut(s, "=")
				if !ok {
					return fmt.Errorf("sidecar %q: want NAME=HOST:PORT", s)
				}
				o.Sidecars = append(o.Sidecars, stages.Sidecar{Name: name, Admin: admin})
			}
			r, err := stages.Run(cmd.Context(), o)
			if err != nil {
				return err
			}
			return r.Text(cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.IntSliceVar(&o.Connections, "connections", []int{128, 256, 512}, "connections of each stage")
	f.DurationVar(&o.Delay, "delay", 50*time.Millisecond, "what a call takes at the service")
	f.DurationVar(&o.Warmup, "warmup", 30*time.Second, "load before the stages, with the most connections")
	f.DurationVar(&o.Duration, "duration", 60*time.Second, "of a stage")
	f.DurationVar(&o.Ready, "ready", time.Minute, "how long the URL may take to answer 200 at the start")
	f.StringArrayVar(&sidecars, "sidecar", nil, "NAME=HOST:PORT of an admin API, to tell its CPU time; repeatable")
	f.StringVar(&o.Token, "token", "", "token of the admin APIs")
	return cmd
}
