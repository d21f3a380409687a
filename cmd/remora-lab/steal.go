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
standard input ends. Either the host of a virtual machine ran something else, or the kernel
kept the processor to itself. Each processor is probed once a period: all longer stops are
found, and some shorter ones. A first line says that all processors are watched. It needs
CAP_SYS_NICE.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if period <= 0 {
				return errors.New("want a period above 0")
			}
			return steal.Print(cmd.Context(), period, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().DurationVar(&period, "period", period, "how often each processor is probed")
	return cmd
}
