package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/lab/consumer"
)

func consumerCommand() *cobra.Command {
	var o consumer.Options
	cmd := &cobra.Command{
		Use:   "consumer",
		Short: "Run a service that calls a Dubbo provider through its sidecar",
		Long: `Run a service that calls a Dubbo provider through the sidecar beside it.

Each request for /invoke makes it ask the sidecar, in a form over HTTP, for the hash of a
random string of 0 to 1023 characters. It responds with 200 "OK" if the result is right, else
with 500 and the error. /stats has the counts, /healthz responds with 200. SIGTERM or Ctrl-C
prints the counts and ends it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runConsumer(cmd, o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.Listen, "listen", "127.0.0.1:8087", "address to listen on")
	f.StringVar(&o.Agent, "agent", "127.0.0.1:20000", "address of the sidecar")
	f.StringVar(&o.Interface, "interface", consumer.DefaultInterface, "Dubbo interface to call")
	f.DurationVar(&o.Timeout, "timeout", 5*time.Second, "of one call")
	return cmd
}

func runConsumer(cmd *cobra.Command, o consumer.Options) error {
	c, err := consumer.Start(o)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "consumer listens on %s, calls %s\n", c.Addr(), o.Agent)
	<-cmd.Context().Done()
	if err := c.Close(); err != nil {
		return err
	}
	return json.NewEncoder(cmd.OutOrStdout()).Encode(c.Stats())
}
