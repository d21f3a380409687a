package main

import (
	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/lab/report"
)

func plotsCommand() *cobra.Command {
	var work, frontier string
	cmd := &cobra.Command{
		Use:   "plots (TAIL.json SHADOW.json | --work WORK.json | --frontier FRONTIER.json) DIR",
		Short: "Draw measurements into DIR",
		Long: `Draw latency curves and forecasts as DIR/tail.svg and DIR/forecast.svg. With --work, draw
DIR/cost.svg instead: what the sidecar costs beside other proxies, by kind of work. With
--frontier, draw DIR/frontier-SHAPE.svg instead: the tail of latency over the extra load.

TAIL.json is made by scripts/tail.sh --json, SHADOW.json by remora-lab demo --mode shadow --json,
WORK.json by scripts/bench.sh work --json, FRONTIER.json by scripts/tail.sh --frontier --json.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if work != "" || frontier != "" {
				return cobra.ExactArgs(1)(cmd, args)
			}
			return cobra.ExactArgs(3)(cmd, args)
		},
		RunE: func(_ *cobra.Command, args []string) error {
			switch {
			case work != "":
				return report.Costs(args[0], work)
			case frontier != "":
				return report.Frontiers(args[0], frontier)
			}
			return report.Plots(args[2], args[0], args[1])
		},
	}
	cmd.Flags().StringVar(&work, "work", "", "draw only cost.svg, from this file")
	cmd.Flags().StringVar(&frontier, "frontier", "", "draw only the frontiers, from this file")
	cmd.MarkFlagsMutuallyExclusive("work", "frontier")
	return cmd
}
