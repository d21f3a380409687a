package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/lab/replica"
)

func replicaCommand() *cobra.Command {
	var o replica.Options
	var log string
	cmd := &cobra.Command{
		Use:   "replica",
		Short: "Run an emulated replica of a feature service that freezes now and then",
		Long: `Run an emulated replica of a feature service.

POST /compute responds with 200 bytes of JSON after a service time, for which it sleeps. With
--workers N it works on N requests at once, in their order. Modes:

  stall       all requests freeze for --stall-len, at random moments of each replica
  correlated  the same, at moments that all replicas with the same --seed share
  gc          nothing is simulated: a cache full of pointers is dropped and refilled
              every --stall-mean on average, and the garbage collector does the rest
  fast        no delay at all, for benches
  expiry      no freezes, but those of a store that breaks down when the cache expires
  bimodal     a tenth of the requests, those of large batches, takes 10 ms longer

With --store it is a replica of "remora-lab demo --workload feature": it keeps what it gets from
the store for a minute, and responds with 503 if it gets nothing. Modes expiry and bimodal need
a store.

/echo returns the request's body, /bytes?size=N so many bytes, /stats the counts, /healthz 200. The response has the
request's x-nonce header. SIGTERM or Ctrl-C prints the counts and ends it.

With --protocol dubbo it is a Dubbo provider with a fixed pool of --workers and no queue:
a call takes 50 ms, and a call without a free worker gets status 100 at once. Interface and
types don't matter; hash(String) returns the string's hashCode, every other method its first
argument. It does not freeze unless --stall-mean is given.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dubbo, given := o.Protocol == replica.Dubbo, cmd.Flags().Changed
			if dubbo && !given("sigma") {
				o.Sigma = 0
			}
			if dubbo && !given("stall-mean") {
				o.StallMean = 0
			}
			return runReplica(cmd, o, log)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Listen, "listen", "127.0.0.1:8080", "address to listen on, or unix:/path")
	f.StringVar(&o.Device, "device", "", "network interface to listen on, of Linux (default all); lo: with --listen 0.0.0.0:PORT, all of 127.0.0.0/8")
	f.StringVar((*string)(&o.Protocol), "protocol", string(replica.HTTP), fmt.Sprintf("one of %v", replica.Protocols))
	f.IntVar(&o.Workers, "workers", 0, "requests at once; more wait (default no limit), protocol dubbo: are refused (default 200)")
	f.StringVar((*string)(&o.Service), "service", string(replica.Lognormal), fmt.Sprintf("distribution of service times: one of %v", replica.Services))
	f.StringVar((*string)(&o.Mode), "mode", string(replica.Stall), fmt.Sprintf("one of %v", replica.Modes))
	f.Uint64Var(&o.Seed, "seed", 1, "seed of freezes and service times")
	f.StringVar(&o.Name, "name", "replica", "name in responses and counts")
	f.DurationVar(&o.Median, "median", 0, "median service time (default 1ms, protocol dubbo: 50ms)")
	f.Float64Var(&o.Sigma, "sigma", 0.5, "sigma of the lognormal service time")
	f.Float64Var(&o.Stragglers, "stragglers", 0, "share of the attempts, each drawn by itself, that take --straggler-len longer")
	f.DurationVar(&o.StragglerLen, "straggler-len", 45*time.Millisecond, "how much longer a straggler takes")
	f.DurationVar(&o.StallMean, "stall-mean", 2*time.Second, "mean gap between freezes, or between refills of the cache")
	f.DurationVar(&o.StallLen, "stall-len", 50*time.Millisecond, "length of a freeze")
	f.IntVar(&o.CacheEntries, "cache-entries", 150_000, "mode gc: size of its cache")
	f.StringVar((*string)(&o.CacheKind), "cache-kind", string(replica.PointerCache), "entries of 13 objects each (pointers), or none (flat)")
	f.IntVar(&o.LocalBatches, "local-batches", 20_000, "with --store: bound of the local cache, in batches of some 100 keys")
	f.StringVar(&log, "log", "", "file that gets a line for each request of HTTP/1.1 to /compute as its work begins:\nUnix µs and x-nonce")
	f.StringVar(&o.Store, "store", "", "address of a store")
	return cmd
}

func runReplica(cmd *cobra.Command, o replica.Options, log string) error {
	if log != "" {
		// Written to without a buffer: what was begun is known also if this process is killed.
		f, err := os.OpenFile(log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
		if err != nil {
			return err
		}
		defer f.Close()
		o.Log = f
	}
	r, err := replica.Start(o)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s listens on %s, mode %s, seed %d\n", o.Name, r.Addr(), o.Mode, o.Seed)
	<-cmd.Context().Done()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	// Requests that are still frozen after that second are cut off, which is no error.
	_ = r.Close(ctx)
	return json.NewEncoder(cmd.OutOrStdout()).Encode(r.Stats())
}
