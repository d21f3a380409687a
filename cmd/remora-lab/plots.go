package main

import (
	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/lab/report"
)

func plotsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "plots TAIL.json SHADOW.json DIR",
		Short: "Draw latency curves and forecasts as DIR/tail.svg and DIR/forecast.svg",
		Long: `Draw latency curves and forecasts as DIR/tail.svg and DIR/forecast.svg.

TAIL.json is made by scripts/tail.sh --json, SHADOW.json by remora-lab demo --mode shadow --json.`,
		Args: cobra.ExactArgs(3),
		RunE: func(_ *cobra.Command, args []string) error { return report.Plots(args[2], args[0], args[1]) },
	}
}
