package main

import (
	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/lab/streams"
)

func streamsCommand() *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "streams",
		Short: "Run a server of gRPC calls with long messages",
		Long: `Run a server of gRPC calls with long messages, by HTTP/2 without TLS. It reads each request to its end, and
responds with a message of ?size=N bytes, at most 16 MiB. "bench messages" runs it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return streams.Serve(cmd.Context(), listen) },
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8080", "address to listen on")
	return cmd
}
