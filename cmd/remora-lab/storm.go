package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/lab/bench"
)

func stormCommand() *cobra.Command {
	var rate float64
	cmd := &cobra.Command{
		Use:   "storm DIR ADDRESS",
		Short: "Make TLS handshakes until standard input ends, and print how many failed",
		Long: `Make full handshakes of TLS 1.3 with a server, each on a connection of its own, until standard input
ends, and print how many failed. DIR has ca.pem, with which the server is verified, and cert.pem and
key.pem, which are shown to a server that asks. "bench handshakes" runs it beside requests.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !(rate > 0) {
				return errors.New("--rate: want more than 0")
			}
			return bench.Storm(cmd.Context(), args[0], args[1], rate, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().Float64Var(&rate, "rate", 500, "handshakes a second")
	return cmd
}
