package main

import (
	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/lab/report"
)

func plotsCommand() *cobra.Command {
	var work string
	cmd := &cobra.Command{
		Use:   "plots (TAIL.json SHADOW.json | --work WORK.json) DIR",
		Short: "Draw latency curves and forecasts, or what the sidecar costs beside other proxies, into DIR",
		Long: `Draw latency curves and forecasts as DIR/tail.svg and DIR/forecast.svg. With --work, draw
DIR/cost.svg instead: what the sidecar costs beside other proxies, by kind of work.

TAIL.json is made by scripts/tail.sh --json, SHADOW.json by remora-lab demo --mode shadow --json,
WORK.json by scripts/bench.sh work --json.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if work != "" {
				return cobra.ExactArgs(1)(cmd, args)
			}
			return cobra.ExactArgs(3)(cmd, args)
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if work != "" {
				return report.Costs(args[0], work)
			}
			return report.Plots(args[2], args[0], args[1])
		},
	}
	cmd.Flags().StringVar(&work, "work", "", "draw only cost.svg, from this file")
	return cmd
}
