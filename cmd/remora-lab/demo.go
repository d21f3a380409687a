package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/lab/demo"
	"github.com/remora-proxy/remora/lab/feature"
	"github.com/remora-proxy/remora/lab/replica"
)

// demoFlags are those that are not in demo.Options.
type demoFlags struct{ json, html, keep string }

// workloads lists the values of --workload.
var workloads = []string{"tail", "feature"}

func demoCommand() *cobra.Command {
	var (
		o        demo.FeatureOptions
		flags    demoFlags
		workload string
	)
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show what Remora does: the same load without it, with it, and with hedging",
		Long: `Show what Remora does, on this machine alone.

Starts etcd and three replicas that freeze for 50 ms now and then, and sends them the same
load three times: straight to the replicas in turn (direct), through a consumer sidecar and
a provider sidecar beside each replica with hedging off (off), and with hedging on (on).
With --mode shadow it goes through two consumer sidecars in turn, every 2.5 s: one with
hedging in shadow mode, which sends no hedges and forecasts their effect, and one with
hedging on. The forecast is shown beside the measurement.

With --workload feature it is a feature service, in less than two minutes: users of an API tier,
whose requests make ten calls at once; a compute tier of three replicas that freeze, each with a
local cache of what it got from a store; and that store, which can't serve all that is asked of
it when the caches expire, at the start of each minute (of 10 s). The same load goes straight to
the replicas in turn (direct), through sidecars with hedging off (off) and on (on), with a replica
for each key besides (affinity), and with equal requests joined and responses kept besides
(cache). A further phase is fixed: hedging after 5 ms.

The sidecars are real processes, with configuration files that --keep leaves for you to read
and to deploy. All processes are stopped at the end, on Ctrl-C and on failure.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch workload {
			case "feature":
				if !cmd.Flags().Changed("seconds") {
					o.Seconds = 20
				}
				return runFeature(cmd, o, flags)
			case "tail":
				return runDemo(cmd, o.Options, flags)
			}
			return fmt.Errorf("unknown workload %q: want one of %v", workload, workloads)
		},
	}
	f := cmd.Flags()
	f.Float64Var(&o.Seconds, "seconds", 15, "length of each measurement (workload feature: whole minutes, 20 by default)")
	f.StringVar(&workload, "workload", workloads[0], fmt.Sprintf("one of %v", workloads))
	f.StringSliceVar(&o.Phases, "phases", demo.FeaturePhases, "workload feature: phases to run, in their order")
	f.IntVar(&o.FanOut, "fan-out", 10, "workload feature: calls of one user at once")
	f.DurationVar(&o.Minute, "minute", 10*time.Second, "workload feature: length of a minute")
	f.IntVar(&o.LocalBatches, "local-batches", 0, fmt.Sprintf("workload feature: bound of a replica's local cache, in batches, of which a minute has %d (default 72)", feature.Grids))
	f.StringVar((*string)(&o.CacheKind), "cache-kind", "", fmt.Sprintf("workload feature: of the replicas' caches, one of %v (default %s in mode gc, else %s)", replica.CacheKinds, replica.PointerCache, replica.FlatCache))
	f.Float64Var(&o.Rate, "rate", 1000, "requests per second")
	f.StringVar((*string)(&o.Mode), "mode", string(replica.Stall), "what disturbs the replicas: stall, gc, correlated, or with workload feature expiry or bimodal (see remora-lab replica --help); shadow: stall, with a forecast")
	f.BoolVar(&o.GRPC, "grpc", false, "make unary gRPC calls instead of requests of HTTP/1.1")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of the replicas' freezes")
	f.StringVar(&flags.json, "json", "", "write the figures to this file")
	f.StringVar(&flags.html, "html", "", "write a page with the latency curves to this file")
	f.StringVar(&flags.keep, "keep", "", "directory that keeps configuration files and logs")
	f.StringVar(&o.Remora, "remora", "", "the remora binary (default: beside this one, or built from the source tree)")
	return cmd
}

// prepare fills in where the demo runs and writes. The caller calls done at the end.
func prepare(cmd *cobra.Command, o *demo.Options, flags demoFlags) (done func(), err error) {
	if o.Self, err = os.Executable(); err != nil {
		return nil, err
	}
	out := cmd.OutOrStdout()
	o.Out = demo.NewScreen(out, isTerminal(out))
	if o.Dir = flags.keep; o.Dir != "" {
		return o.Out.Clear, os.MkdirAll(o.Dir, 0o755)
	}
	o.Dir, err = os.MkdirTemp("", "remora-demo-")
	return func() { o.Out.Clear(); os.RemoveAll(o.Dir) }, err
}

func runDemo(cmd *cobra.Command, o demo.Options, flags demoFlags) (err error) {
	done, err := prepare(cmd, &o, flags)
	if err != nil {
		return err
	}
	r, err := demo.Run(cmd.Context(), o)
	done()
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "\n%s\n%s%s", r.Table(), r.ForecastTable(), r.Plot(72, 18))
	flags.printKept(out)
	writeReport := func(w io.Writer) error { return writeJSON(w, r) }
	return errors.Join(write(flags.json, writeReport), write(flags.html, r.HTML))
}

func (f demoFlags) printKept(out io.Writer) {
	if f.keep != "" {
		fmt.Fprintf(out, "\nconfiguration files and logs: %s\n", f.keep)
	}
}

func runFeature(cmd *cobra.Command, o demo.FeatureOptions, flags demoFlags) error {
	if flags.html != "" || o.GRPC {
		return errors.New("--html and --grpc are not for workload feature")
	}
	done, err := prepare(cmd, &o.Options, flags)
	if err != nil {
		return err
	}
	r, err := demo.RunFeature(cmd.Context(), o)
	done()
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "\n%s", r.Table())
	flags.printKept(out)
	return write(flags.json, func(w io.Writer) error { return writeJSON(w, r.JSON()) })
}

// write writes a file with to. It does nothing if the name is "".
func write(file string, to func(io.Writer) error) error {
	if file == "" {
		return nil
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(to(f), f.Close())
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// isTerminal reports whether w is a character device, as a terminal is.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
