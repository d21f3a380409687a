package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/lab/feature"
)

func storeCommand() *cobra.Command {
	var o feature.StoreOptions
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Run the store behind the replicas of a feature service",
		Long: `Run the store behind the replicas of a feature service.

GET /get?keys=N&wait=D responds with N features. A worker responds after the latency, and is busy for
longer: --workers requests at once are fast, and --workers / --busy per second are the most. More
wait, for D at most. Replicas ask again after 20 ms, so a store that is asked for more breaks down.

/stats has the counts; POST /reset?epoch=UNIXNANO sets them to 0, and says when some minute
begins. SIGTERM or Ctrl-C prints the counts and ends it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := feature.StartStore(o)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "store listens on %s\n", s.Addr())
			<-cmd.Context().Done()
			if err := s.Close(); err != nil {
				return err
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(s.Stats())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Listen, "listen", "127.0.0.1:8090", "address to listen on")
	f.DurationVar(&o.Median, "median", 300*time.Microsecond, "median latency, without a wait for a worker")
	f.Float64Var(&o.Sigma, "sigma", 0.3, "sigma of the lognormal latency")
	f.IntVar(&o.Workers, "workers", 96, "requests at once")
	f.DurationVar(&o.Busy, "busy", 150*time.Millisecond, "how long a request keeps its worker busy")
	f.IntVar(&o.Queue, "queue", 1000, "requests that wait; more are refused")
	f.DurationVar(&o.Minute, "minute", time.Minute, "length of a minute, of which the counts keep the first sixth apart")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of the latencies")
	return cmd
}
