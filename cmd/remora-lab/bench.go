package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/lab/bench"
)

// benchFlags are the flags of the bench that are not in bench.Options.
type benchFlags struct {
	places      bench.Places
	rows        []string
	connections []int
	rates       []float64
	seconds     float64
	json        string
}

func benchCommand() *cobra.Command {
	o := bench.Options{Watch: true}
	var flags benchFlags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what the sidecar costs beside other proxies",
		Long: `Measure what the sidecar costs, on this machine, beside other proxies.

The same load goes straight to a replica (direct), through one sidecar (remora-1: HTTP in,
HTTP out) and two with the link between (remora-2; also with mutual TLS, with access log,
scraped metrics and traces, and without garbage collection), and through one and two of
nginx, HAProxy, Envoy and a TCP relay that parses nothing, as far as they are found. All run
in turn, round after round, with one worker each: compare rows of one run only.

A row is put under closed loops (made by wrk if it is installed) and open loops (made by the
lab). One proxy of each kind is also measured at rest: its memory, its CPU time, and the
memory of idle connections. The report is Markdown; its last table judges the promises.

CPU per request is the most reliable figure. Throughput and latency also depend on the load,
which shares the machine.

During a load the processors are watched for moments in which one stands still, as in a
virtual machine whose host is busy. The latencies of open loops are those of requests that
were not due near such a moment. This needs CAP_SYS_NICE: without it, the report says that
the processors were not watched.

A row that fails has no figures of that round, and the report gives the reason; the others
go on. All processes are stopped at the end, on Ctrl-C and on failure.

The exit status is 1 if a sidecar or the direct way failed, or a request through them, and if
nothing was measured. It is 0 if only other proxies failed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runBench(cmd, o, flags) },
	}
	f := cmd.Flags()
	f.IntVar(&o.Rounds, "rounds", 3, "how often each row is measured")
	f.StringSliceVar(&flags.rows, "rows", nil, "rows to measure (default all): "+rowNames(bench.Rows()))
	f.IntSliceVar(&flags.connections, "connections", []int{1, 64, 512}, "connections of the closed loops")
	f.Float64SliceVar(&flags.rates, "rate", []float64{2000, 8000}, "requests per second of the open loops")
	f.Float64Var(&flags.seconds, "seconds", 3, "length of each load; wrk takes whole seconds")
	f.DurationVar(&o.Rest.Duration, "idle", 5*time.Second, "how long a proxy is measured at rest")
	f.IntVar(&o.Rest.Connections, "idle-connections", 10_000, "idle connections of a proxy at rest; 0 means that nothing is measured at rest")
	flags.addCommon(cmd)
	cmd.AddCommand(tailCommand(), dubboCommand(), memoryCommand())
	return cmd
}

func memoryCommand() *cobra.Command {
	var flags benchFlags
	var count, links int
	cmd := &cobra.Command{
		Use:   "memory",
		Short: "Measure what connections, requests and links cost a sidecar in memory",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := flags.find()
			if err != nil {
				return err
			}
			return bench.Memory(cmd.Context(), t, count, links, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.IntVar(&count, "count", 2000, "connections and requests")
	f.IntVar(&links, "links", 200, "endpoints that are called over links")
	f.StringVar(&flags.places.Remora, "remora", "", "the remora binary (default: beside this one, or in PATH)")
	return cmd
}

func dubboCommand() *cobra.Command {
	o := bench.Options{Kind: bench.Dubbo, Watch: true}
	var flags benchFlags
	cmd := &cobra.Command{
		Use:   "dubbo",
		Short: "Measure what it costs to make Dubbo calls of HTTP requests",
		Long: `Measure what it costs to make Dubbo calls of HTTP requests: forms into a consumer's sidecar,
fastjson out of three providers' sidecars, with a provider of the lab behind each. Calls take no
time (dubbo), or 50 ms (dubbo-50ms). It needs wrk. The exit status is 1 if a request failed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Rows, err = bench.Choose(bench.DubboRows(), flags.rows); err != nil {
				return err
			}
			for _, n := range flags.connections {
				o.Loads = append(o.Loads, bench.Closed(n, time.Duration(flags.seconds*float64(time.Second))))
			}
			return flags.run(cmd, o)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Rounds, "rounds", 3, "how often each row is measured")
	f.Float64Var(&flags.seconds, "seconds", 5, "length of each load; wrk takes whole seconds")
	f.IntSliceVar(&flags.connections, "connections", []int{64, 128, 256, 512}, "connections of the closed loops")
	f.StringSliceVar(&flags.rows, "rows", nil, "rows to measure (default all): "+rowNames(bench.DubboRows()))
	flags.addCommon(cmd)
	return cmd
}

func tailCommand() *cobra.Command {
	o := bench.Options{Kind: bench.Tail}
	var flags benchFlags
	var rate float64
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Measure the tail of latency while replicas freeze",
		Long: `Measure the tail of latency while replicas freeze.

Three replicas, whose requests take 1 ms in the median (lognormal, sigma 0.5), freeze for 50 ms
every 2 s on average. They are called through HAProxy, through Envoy with and without its
hedging, and through two of Remora's sidecars, without hedging and with it. All run in turn,
round after round, with one worker each, and meet the same freezes.

The exit status is 1 if a promise does not hold, or a request through a sidecar failed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if flags.seconds <= 0 || rate <= 0 {
				return errors.New("want a length and a rate above 0")
			}
			if o.Rows, err = bench.Choose(bench.TailRows(), flags.rows); err != nil {
				return err
			}
			o.Loads = []bench.Load{bench.Freezes(rate, time.Duration(flags.seconds*float64(time.Second)))}
			return flags.run(cmd, o)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Rounds, "rounds", 3, "how often each row is measured")
	f.Float64Var(&flags.seconds, "seconds", 30, "length of each measurement")
	f.Float64Var(&rate, "rate", 1000, "requests per second")
	f.Uint64Var(&o.Seed, "seed", 0, "other freezes")
	f.StringSliceVar(&flags.rows, "rows", nil, "rows to measure (default all): "+rowNames(bench.TailRows()))
	f.BoolVar(&o.Watch, "steal", false, "leave out requests that a stop of a processor disturbed (see remora-lab load --help)")
	flags.addCommon(cmd)
	return cmd
}

// addCommon adds the flags that all benches have.
func (flags *benchFlags) addCommon(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&flags.places.Remora, "remora", "", "the remora binary (default: beside this one, or in PATH)")
	f.StringVar(&flags.places.Peers, "peers", peers(), "folder that may have bin/relay, bin/backend and venv/bin/envoy (default $BENCH_DIR)")
	f.StringVar(&flags.places.Relay, "relay", "", "a TCP relay, started with PORT BACKEND-PORT (default: of the peers)")
	f.StringVar(&flags.places.Envoy, "envoy", "", "the envoy binary (default: in PATH, or of the peers)")
	f.StringVar(&flags.json, "json", "", "write all samples to this file")
}

// peers is the folder that setup scripts put other proxies into.
func peers() string {
	if dir := os.Getenv("BENCH_DIR"); dir != "" {
		return dir
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(cache, "remora-bench")
}

func rowNames(rows []bench.Row) string {
	var names []string
	for _, r := range rows {
		names = append(names, r.Name)
	}
	return strings.Join(names, " ")
}

func runBench(cmd *cobra.Command, o bench.Options, flags benchFlags) (err error) {
	if flags.seconds <= 0 {
		return errors.New("want loads that take time")
	}
	if o.Rows, err = bench.Choose(bench.Rows(), flags.rows); err != nil {
		return err
	}
	d := time.Duration(flags.seconds * float64(time.Second))
	for _, n := range flags.connections {
		o.Loads = append(o.Loads, bench.Closed(n, d))
	}
	for _, rate := range flags.rates {
		o.Loads = append(o.Loads, bench.Open(rate, d))
	}
	return flags.run(cmd, o)
}

// find looks for the programs.
func (flags *benchFlags) find() (t bench.Tools, err error) {
	if flags.places.Self, err = os.Executable(); err != nil {
		return nil, err
	}
	return bench.Find(flags.places)
}

// run finds the programs, measures, and writes the report.
func (flags *benchFlags) run(cmd *cobra.Command, o bench.Options) (err error) {
	if o.Tools, err = flags.find(); err != nil {
		return err
	}
	o.Progress = func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) }
	r, err := bench.Run(cmd.Context(), o)
	if err != nil {
		return err
	}
	return errors.Join(r.Text(cmd.OutOrStdout()), write(flags.json, r.JSON), r.Check())
}
