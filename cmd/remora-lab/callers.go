package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/lab/demo"
)

func callersCommand() *cobra.Command {
	var c demo.Callers
	var joined []string
	cmd := &cobra.Command{
		Use:   "callers NAME=URL[,URL...]...",
		Short: "Call a feature service that runs already, as its users do",
		Long: `Call a feature service that runs already, as the users of its API tier do: each makes several
calls at once. The same load goes each way in turn, over the URLs of a way in turn. Before each the
replicas and the store are reset. At the end it prints the table of "remora-lab demo --workload
feature", without CPU and hedges.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var ways []demo.Way
			for _, arg := range args {
				name, urls, ok := strings.Cut(arg, "=")
				if !ok {
					return fmt.Errorf("%q: want NAME=URL[,URL...]", arg)
				}
				ways = append(ways, demo.Way{Name: name, Targets: strings.Split(urls, ",")})
			}
			for _, name := range joined {
				for i := range ways {
					ways[i].Joined = ways[i].Joined || ways[i].Name == name
				}
			}
			out := cmd.OutOrStdout()
			c.Out = demo.NewScreen(out, isTerminal(out))
			r, err := c.Run(cmd.Context(), ways)
			c.Out.Clear()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(out, "\n%s", r.Table())
			return err
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&c.Replicas, "replica", nil, "addresses of the replicas")
	f.StringVar(&c.Store, "store", "127.0.0.1:8090", "address of the store")
	f.Float64Var(&c.Seconds, "seconds", 20, "length of each way, in whole minutes")
	f.Float64Var(&c.Rate, "rate", 1000, "calls per second")
	f.IntVar(&c.FanOut, "fan-out", 10, "calls of one user at once")
	f.DurationVar(&c.Minute, "minute", 10*time.Second, "length of a minute; that of the store must be the same")
	f.DurationVar(&c.Warmup, "warmup", 1500*time.Millisecond, "before each way, not counted")
	f.DurationVar(&c.Timeout, "timeout", 2*time.Second, "of a call")
	f.Uint64Var(&c.Seed, "seed", 1, "seed of the keys")
	f.StringSliceVar(&joined, "joined", nil, "names of ways whose responses may be those to other requests, of a cache")
	return cmd
}
