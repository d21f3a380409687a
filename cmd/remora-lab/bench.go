package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/lab/bench"
	"github.com/remora-proxy/remora/lab/report"
)

// benchFlags are the flags of the bench that have to be made into bench.Options.
type benchFlags struct {
	places      bench.Places
	rows        []string
	connections []int
	rates       []float64
	seconds     float64

	json, markdown, html string
}

func benchCommand() *cobra.Command {
	var (
		o     bench.Options
		flags benchFlags
	)
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
memory of idle connections. Below the tables it says which promises hold.

What is measured best is CPU per request. Throughput and latency tell as much about the load,
which shares the machine.

Loads are watched for moments in which a processor stands still, as those of a virtual machine
do whose host is busy. Open loops tell the latencies of requests that were not due near such a
moment, and a load that was stopped for more than 2% of its time is measured again, --repeats
times at most. It takes CAP_SYS_NICE: without it, the report says that nobody watched.

A row that fails has no figures of that round, and is named in the report with the reason; the
others go on. Everything that was started is stopped at the end, on Ctrl-C and on failure.

It ends with 1 when a sidecar or the direct way failed, or a request through them, and when
nothing was measured; with 0 when only other proxies failed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runBench(cmd, o, flags) },
	}
	f := cmd.Flags()
	f.IntVar(&o.Rounds, "rounds", 3, "how often each row is measured")
	f.IntVar(&o.Repeats, "repeats", 2, "how often at most a load is measured again, in each round, because processors stood still")
	f.StringSliceVar(&flags.rows, "rows", nil, "rows to measure (default all): "+rowNames())
	f.IntSliceVar(&flags.connections, "connections", []int{1, 64, 512}, "connections of the closed loops")
	f.Float64SliceVar(&flags.rates, "rate", []float64{2000, 8000}, "requests per second of the open loops")
	f.Float64Var(&flags.seconds, "seconds", 3, "length of each load; whole ones for wrk")
	f.DurationVar(&o.Rest.Duration, "idle", 5*time.Second, "how long a proxy is watched at rest")
	f.IntVar(&o.Rest.Connections, "idle-connections", 10_000, "idle connections then; 0: nothing is measured at rest")
	f.StringVar(&flags.places.Remora, "remora", "", "the remora binary (default: beside this one, or in PATH)")
	f.StringVar(&flags.places.Peers, "peers", peers(), "folder that may have bin/relay, bin/backend and venv/bin/envoy (default $BENCH_DIR)")
	f.StringVar(&flags.places.Relay, "relay", "", "a TCP relay, started with PORT BACKEND-PORT (default: of the peers)")
	f.StringVar(&flags.places.Envoy, "envoy", "", "the envoy binary (default: in PATH, or of the peers)")
	flags.addFiles(cmd)
	cmd.AddCommand(scaleCommand())
	return cmd
}

// addFiles adds the flags of what is written.
func (flags *benchFlags) addFiles(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&flags.json, "json", "", "write all samples to this file")
	f.StringVar(&flags.markdown, "markdown", "", "write the tables to this file")
	f.StringVar(&flags.html, "html", "", "write a page with plots to this file")
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

func rowNames() string {
	var names []string
	for _, r := range bench.Rows() {
		names = append(names, r.Name)
	}
	return strings.Join(names, " ")
}

func runBench(cmd *cobra.Command, o bench.Options, flags benchFlags) (err error) {
	if flags.seconds <= 0 || o.Rounds < 1 || o.Repeats < 0 {
		return fmt.Errorf("want at least a round, no less than 0 repeats, and loads that take time")
	}
	if o.Rows, err = bench.Choose(flags.rows); err != nil {
		return err
	}
	if o.Tools, o.Progress, err = flags.find(cmd); err != nil {
		return err
	}
	d := time.Duration(flags.seconds * float64(time.Second))
	for _, n := range flags.connections {
		o.Loads = append(o.Loads, bench.Closed(n, d))
	}
	for _, rate := range flags.rates {
		o.Loads = append(o.Loads, bench.Open(rate, d))
	}
	r, err := bench.Run(cmd.Context(), o)
	if err != nil {
		return err
	}
	return flags.write(cmd, r)
}

// find sets what the commands of the bench have in common.
func (flags *benchFlags) find(cmd *cobra.Command) (t bench.Tools, progress func(string), err error) {
	if flags.places.Self, err = os.Executable(); err != nil {
		return nil, nil, err
	}
	t, err = bench.Find(flags.places)
	return t, func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) }, err
}

// A benchReport is what was measured.
type benchReport interface {
	Page() report.Page
	JSON(io.Writer) error
	Check() error
}

// write puts the report wherever it is wanted.
func (flags *benchFlags) write(cmd *cobra.Command, r benchReport) error {
	page := r.Page()
	if err := page.Text(cmd.OutOrStdout()); err != nil {
		return err
	}
	if err := write(flags.json, r.JSON); err != nil {
		return err
	}
	if err := write(flags.markdown, page.Markdown); err != nil {
		return err
	}
	if err := write(flags.html, page.HTML); err != nil {
		return err
	}
	return r.Check()
}
