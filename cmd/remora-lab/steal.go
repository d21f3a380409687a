package main

import (
	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/lab/steal"
)

func stealCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "steal",
		Short: "Print when a processor stands still, until standard input ends",
		Long: `Print when a processor of this machine stands still, a line of JSON each time, until
standard input ends: the host of a virtual machine gave its time to somebody else, or the
kernel kept it to itself, for some 2 ms or more. It takes CAP_SYS_NICE.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return steal.Print(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}
