package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/lab/steal"
)

func stealCommand() *cobra.Command {
	period := steal.Period
	cmd := &cobra.Command{
		Use:   "steal",
		Short: "Print when a processor stands still, until standard input ends",
		Long: `Print when a processor of this machine stands still, a line of JSON each time, until
standard input ends: the host of a virtual machine gave its time to somebody else, or the
kernel kept it to itself. Each is asked once a period: stops that are longer than it, and
some shorter ones, are seen. A first line says that all processors are watched from now on.
It takes CAP_SYS_NICE.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if period <= 0 {
				return errors.New("want a period above 0")
			}
			return steal.Print(cmd.Context(), period, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().DurationVar(&period, "period", period, "how often each processor is asked")
	return cmd
}
