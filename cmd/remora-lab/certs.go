package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/lab/certs"
)

// maxDays bounds --days: certificates for trying things out need no more.
const maxDays = 3650

func certsCommand() *cobra.Command {
	var leaves []string
	var days int
	cmd := &cobra.Command{
		Use:   "certs DIR",
		Short: "Make an authority and certificates, for trying out TLS",
		Long: `Make an authority and certificates, for trying out TLS: ca.pem and, for each leaf, NAME.pem, with
their keys in ca-key.pem and NAME-key.pem, which only you can read. Each certificate is good for
clients and servers. No file is replaced.

--leaf NAME=SAN,SAN may be given several times. A SAN is a SPIFFE id, an IP address or a host name.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if days < 1 || days > maxDays {
				return fmt.Errorf("--days: expected 1 to %d, got %d", maxDays, days)
			}
			all, err := certs.ParseLeaves(leaves)
			if err != nil {
				return fmt.Errorf("--leaf %w", err)
			}
			paths, err := certs.Make(args[0], all, time.Duration(days)*24*time.Hour)
			for _, path := range paths {
				fmt.Fprintln(cmd.OutOrStdout(), path)
			}
			return err
		},
	}
	cmd.Flags().StringArrayVar(&leaves, "leaf", certs.Default, "a certificate: NAME=SAN,SAN")
	cmd.Flags().IntVar(&days, "days", 30, "how long the certificates are valid")
	return cmd
}
