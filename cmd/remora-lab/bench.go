package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/lab/bench"
)

// comparison is a bench of rows, and its flags.
type comparison struct {
	bench.Options
	all         []bench.Row
	places      bench.Places
	rows        []string
	connections []int
	streams     []int     // of gRPC
	rates       []float64 // of open loops
	grpc        bool      // calls, in the tail bench
	freezing    float64   // rate of an open loop while replicas freeze; 0 means none
	jobs        []string  // of the bench of work
	clients     int       // of handshakes
	storm       float64   // handshakes a second beside requests
	seconds     float64
	json        string

	// measure runs the comparison. length is that of each load.
	measure func(ctx context.Context, o bench.Options, length time.Duration) (*bench.Report, error)
}

func benchCommand() *cobra.Command {
	c := comparison{all: bench.Rows(), Options: bench.Options{Watch: true}}
	cmd := c.command("bench", "Measure what the sidecar costs beside other proxies",
		`Measure what the sidecar costs, on this machine, beside other proxies.

The same load goes straight to a replica (direct), through one sidecar (remora-1: HTTP in,
HTTP out) and two with the link between (remora-2; also with mutual TLS, with access log,
scraped metrics and traces, and without garbage collection), and through one and two of
nginx, HAProxy, Envoy and a TCP relay that parses nothing, as far as they are found. floor-2
makes the system calls of two hops, and nothing else. All run in turn, round after round, with
one worker each: compare rows of one run only.

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
nothing was measured. It is 0 if only other proxies failed.`)
	f := cmd.Flags()
	f.IntSliceVar(&c.connections, "connections", []int{1, 64, 512}, "connections of the closed loops")
	f.Float64SliceVar(&c.rates, "rate", []float64{2000, 8000}, "requests per second of the open loops")
	f.Float64Var(&c.seconds, "seconds", 3, "length of each load; wrk takes whole seconds")
	c.restFlags(cmd)
	f.IntVar(&c.Rest.Connections, "idle-connections", 10_000,
		"idle connections of a proxy at rest; 0 means that nothing is measured at rest")
	cmd.AddCommand(workCommand(), tailCommand(), matrixCommand(), frontierCommand(), dubboCommand(), httpsCommand(), handshakesCommand(), grpcCommand(), messagesCommand(),
		meshCommand(), scaleCommand(), memoryCommand())
	return cmd
}

func workCommand() *cobra.Command {
	c := comparison{all: bench.WorkRows(), Options: bench.Options{Kind: bench.Work, Watch: true}}
	cmd := c.command("work", "Measure more kinds of work beside other proxies",
		`Measure more kinds of work than bench does, beside the same proxies. Jobs:

  busy    64 connections; two hops also with 2 and 4 loops each
  low     1 connection, 200 and 2,000 requests a second
  new     64 clients, with a new connection for each request. Connections to the replica
          stay open, but for the relay's
  bodies  responses and requests of 64 KiB to 4 MiB, 8 connections
  rest    one proxy of each kind: start to first response, CPU and memory at rest, and the
          memory of idle connections

The exit status is 1 if a sidecar or the direct way failed, or a request through them.`)
	var all []string
	for _, job := range bench.Jobs {
		all = append(all, string(job))
	}
	f := cmd.Flags()
	f.StringSliceVar(&c.jobs, "jobs", all, "what to measure")
	f.Float64Var(&c.seconds, "seconds", 3, "length of each load; wrk takes whole seconds")
	c.restFlags(cmd)
	f.IntVar(&c.Rest.Connections, "idle-connections", 100_000,
		"idle connections of a proxy at rest, as far as the limit of descriptors allows")
	return cmd
}

func httpsCommand() *cobra.Command {
	c := comparison{all: bench.HTTPSRows(), Options: bench.Options{Kind: bench.HTTPS, Watch: true}}
	cmd := c.command("https", "Measure what HTTPS costs beside HAProxy",
		`Measure what HTTPS costs: one sidecar, and HAProxy, called by HTTPS (https-in) or calling a
server by it (https-out), over connections that stay open. It needs wrk and HAProxy. The exit
status is 1 if a request failed.`)
	f := cmd.Flags()
	f.Float64Var(&c.seconds, "seconds", 5, "length of each load; wrk takes whole seconds")
	f.IntSliceVar(&c.connections, "connections", []int{1, 64}, "connections of the closed loops")
	return cmd
}

func handshakesCommand() *cobra.Command {
	c := comparison{all: bench.HandshakeRows(), Options: bench.Options{Kind: bench.TLS, Watch: true}}
	cmd := c.command("handshakes", "Measure what TLS handshakes cost beside other proxies",
		`Measure what TLS handshakes cost: full and resumed, TLS 1.3 and 1.2, with keys of ECDSA P-256 and RSA
of 2,048 bits, with X25519 alone and with ML-KEM-768. Rows listener are a sidecar, HAProxy and nginx that
are called by HTTPS. Rows link are two of each that show certificates to each other: the handshakes are
with the second one. A client of the lab makes each handshake on a connection of its own, and closes it.
In rows dial the first one dials the second one for each request.

Then an open loop of requests over connections that stay open runs alone, and beside a storm of full
handshakes. The exit status is 1 if a handshake or a request failed at a sidecar.`)
	f := cmd.Flags()
	f.Float64Var(&c.seconds, "seconds", 3, "length of each load")
	f.IntVar(&c.clients, "clients", 8, "clients of the closed loops")
	f.Float64Var(&c.storm, "storm", 500, "full handshakes a second beside requests")
	return cmd
}

func grpcCommand() *cobra.Command {
	c := comparison{all: bench.GRPCRows(), Options: bench.Options{Kind: bench.GRPC, Watch: true}}
	cmd := c.command("grpc", "Measure what gRPC costs beside other proxies",
		`Measure what unary gRPC calls cost: straight to a replica, and through one and two of nginx,
HAProxy, Envoy and Remora, with HTTP/2 on each way but the link between two sidecars. It needs
h2load. The exit status is 1 if a request through a sidecar failed.`)
	f := cmd.Flags()
	f.Float64Var(&c.seconds, "seconds", 5, "length of each load, in whole seconds")
	f.IntSliceVar(&c.streams, "streams", []int{64, 512}, "calls in flight of the closed loops, eight over each connection")
	return cmd
}

func messagesCommand() *cobra.Command {
	c := comparison{all: bench.MessageRows(), Options: bench.Options{Kind: bench.LongMessages, Watch: true}}
	cmd := c.command("messages", "Measure what long gRPC messages cost beside other proxies",
		`Measure what gRPC messages of 64 KiB to 4 MiB cost, as requests and as responses: straight to a server,
and through one and two of nginx, HAProxy, Envoy and Remora, with HTTP/2 on each way but the link
between two sidecars. It needs h2load. The exit status is 1 if a request through a sidecar failed.`)
	cmd.Flags().Float64Var(&c.seconds, "seconds", 3, "length of each load, in whole seconds")
	return cmd
}

func meshCommand() *cobra.Command {
	c := comparison{all: bench.MeshRows(), Options: bench.Options{Kind: bench.Mesh, Watch: true}}
	cmd := c.command("mesh", "Measure what two sidecars of a mesh cost beside Envoy",
		`Measure what two sidecars with mutual TLS between them cost, beside two Envoys with the same: the
CPU and memory of each while 1,000 requests a second pass, 1 KiB each way. Istio publishes figures
for this load: a sidecar takes 0.20 vCPU and 60 MB, ztunnel 0.06 vCPU and 12 MB
(istio.io/latest/docs/ops/deployment/performance-and-scalability, of Istio 1.24). In
remora-mesh-unix the second sidecar calls its application over a Unix socket. The metrics of all
proxies are scraped each second.

A second load is a closed loop. The exit status is 1 if a request through a sidecar failed.`)
	f := cmd.Flags()
	f.Float64Var(&c.seconds, "seconds", 10, "length of each load; wrk takes whole seconds")
	f.IntSliceVar(&c.connections, "connections", []int{64}, "connections of the closed loops")
	return cmd
}

func scaleCommand() *cobra.Command {
	var cores, connections int
	c := comparison{all: bench.ScaleRows(runtime.NumCPU()), Options: bench.Options{Kind: bench.Scale, Watch: true}}
	cmd := c.command("scale", "Measure sidecars on more and more processors",
		`Measure one sidecar and two with 1, 2, 4 and so on up to --cores processors each, and the direct
way. Load, replica and each sidecar have as many processors of their own, by taskset. So n cores
take 3n processors with one sidecar, 4n with two. If there are fewer, the load and the replica share
what the sidecars leave; if there are none left, all share. The last column of the table of growth says so. The
processors are those of Linux: two hyperthreads of a core count as two.

The direct way shows what load and replica can do: where a sidecar comes near, they are the limit. It
needs wrk. The exit status is 1 if a request failed.`)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cores < 1 || connections < 1 {
			return errors.New("want at least one core and one connection")
		}
		c.all = bench.ScaleRows(cores)
		c.Loads = []bench.Load{bench.ScaleLoad(connections, time.Duration(c.seconds*float64(time.Second)))}
		return run(cmd, args)
	}
	f := cmd.Flags()
	f.IntVar(&cores, "cores", runtime.NumCPU(), "the most processors of a sidecar")
	f.IntVar(&connections, "connections", 64, "connections for each core")
	f.Float64Var(&c.seconds, "seconds", 5, "length of each load, in whole seconds")
	return cmd
}

func dubboCommand() *cobra.Command {
	c := comparison{all: bench.DubboRows(), Options: bench.Options{Kind: bench.Dubbo, Watch: true}}
	cmd := c.command("dubbo", "Measure what it costs to make Dubbo calls of HTTP requests",
		`Measure what it costs to make Dubbo calls of HTTP requests: forms into a consumer's sidecar,
fastjson out of three providers' sidecars, with a provider of the lab behind each. Calls take no
time (dubbo), or 50 ms (dubbo-50ms). It needs wrk. The exit status is 1 if a request failed.`)
	f := cmd.Flags()
	f.Float64Var(&c.seconds, "seconds", 5, "length of each load; wrk takes whole seconds")
	f.IntSliceVar(&c.connections, "connections", []int{64, 128, 256, 512}, "connections of the closed loops")
	return cmd
}

func tailCommand() *cobra.Command {
	c := comparison{all: bench.TailRows(false), Options: bench.Options{Kind: bench.Tail}}
	cmd := c.command("tail", "Measure the tail of latency while replicas freeze",
		`Measure the tail of latency while replicas freeze.

Three replicas, whose requests take 1 ms in the median (lognormal, sigma 0.5), freeze for 50 ms
every 2 s on average. In the rows stragglers-5 and stragglers-2 a request takes 4.6 ms, and 5% or
2% of them 45 ms more, wherever they are sent. The replicas are called through HAProxy, through Envoy with and without its
hedging, and through two of Remora's sidecars, without hedging and with it. All run in turn,
round after round, with one worker each, and meet the same freezes.

The exit status is 1 if a promise does not hold, or a request through a sidecar failed.`)
	f := cmd.Flags()
	f.Float64Var(&c.seconds, "seconds", 30, "length of each measurement")
	f.Float64Var(&c.freezing, "rate", 1000, "requests per second, but to stragglers")
	f.Uint64Var(&c.Seed, "seed", 0, "other freezes")
	f.BoolVar(&c.grpc, "grpc", false, "unary gRPC calls instead of HTTP/1.1; needs h2load")
	f.BoolVar(&c.Watch, "steal", false,
		"leave out requests that a stop of a processor disturbed (see remora-lab load --help)")
	return cmd
}

func matrixCommand() *cobra.Command {
	var o bench.Options
	var places bench.Places
	var seconds float64
	var chosen []int
	var samples string
	cmd := &cobra.Command{
		Use:   "matrix",
		Short: "Measure hedging at several loads, workers, service times and freezes",
		Long: `Measure hedging at several loads, workers, service times and freezes.

In each case three replicas, of so many requests at once, are called through one sidecar
without hedging and with it, and through HAProxy. Requests come at random moments (Poisson).
All ways run in turn, round after round, and meet the same moments and freezes.

The exit status is 1 if a sidecar, or a request through one, failed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Tools, err = bench.Find(places); err != nil {
				return err
			}
			var cells []bench.Cell
			for i, c := range bench.Cells() {
				if len(chosen) == 0 || slices.Contains(chosen, i+1) {
					cells = append(cells, c)
				}
			}
			o.Progress = func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), time.Now().Format(time.TimeOnly), line) }
			r, err := bench.Matrix(cmd.Context(), o, cells, time.Duration(seconds*float64(time.Second)))
			if err != nil {
				return err
			}
			raw := func(w io.Writer) error { return writeJSON(w, r) }
			return errors.Join(r.Text(cmd.OutOrStdout()), write(samples, raw), r.Check())
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Rounds, "rounds", 3, "how often each way of a case is measured")
	f.Float64Var(&seconds, "seconds", 9, "length of each measurement")
	f.IntSliceVar(&chosen, "cells", nil, "numbers of cases, from 1 (default all)")
	f.Uint64Var(&o.Seed, "seed", 0, "other freezes and moments")
	f.BoolVar(&o.Watch, "steal", false,
		"leave out requests that a stop of a processor disturbed (see remora-lab load --help)")
	f.StringVar(&places.Remora, "remora", "", remoraUsage)
	f.StringVar(&samples, "json", "", "write all samples to this file")
	return cmd
}

// command returns the command, with the flags that all comparisons have.
func (c *comparison) command(use, short, long string) *cobra.Command {
	c.measure = func(ctx context.Context, o bench.Options, _ time.Duration) (*bench.Report, error) {
		return bench.Run(ctx, o)
	}
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	f := cmd.Flags()
	f.IntVar(&c.Rounds, "rounds", 3, "how often each row is measured")
	f.StringSliceVar(&c.rows, "rows", nil,
		"rows to measure (default all): "+strings.Join(bench.Names(c.all), " "))
	f.StringVar(&c.places.Remora, "remora", "", remoraUsage)
	f.StringVar(&c.places.Peers, "peers", peers(),
		"folder that may have venv/bin/envoy (default $BENCH_DIR)")
	f.StringVar(&c.places.Envoy, "envoy", "", "the envoy binary (default: in PATH, or of the peers)")
	f.StringVar(&c.json, "json", "", "write all samples to this file")
	return cmd
}

const remoraUsage = "the remora binary (default: beside this one, or in PATH)"

// peers is the folder that may have Envoy.
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

func (c *comparison) run(cmd *cobra.Command) (err error) {
	if c.seconds <= 0 || c.Kind == bench.TLS && (c.clients < 1 || c.storm <= 0) || c.Kind == bench.Tail && c.freezing <= 0 {
		return errors.New("want loads with a length, a rate and clients above 0")
	}
	if c.grpc {
		c.all = bench.TailRows(true)
	}
	if c.Rows, err = bench.Choose(c.all, c.rows); err != nil {
		return err
	}
	length := time.Duration(c.seconds * float64(time.Second))
	if c.Kind == bench.Mesh {
		c.Loads = append(c.Loads, bench.MeshLoad(length))
	}
	for _, n := range c.connections {
		c.Loads = append(c.Loads, bench.Closed(n, length))
	}
	for _, n := range c.streams {
		c.Loads = append(c.Loads, bench.Streams(n, length))
	}
	for _, rate := range c.rates {
		c.Loads = append(c.Loads, bench.Open(rate, length))
	}
	if c.Kind == bench.Work {
		if err := c.addWork(length); err != nil {
			return err
		}
	}
	if c.Kind == bench.LongMessages {
		c.Loads = bench.Messages(length)
	}
	if c.Kind == bench.TLS {
		c.Loads = bench.HandshakeLoads(c.clients, c.storm, length)
	}
	if c.freezing > 0 {
		c.Loads = append(c.Loads, bench.Freezes(c.freezing, length), bench.Stragglers(length))
		c.Loads = append(c.Loads, bench.Futile(length)...)
	}
	if c.Tools, err = bench.Find(c.places); err != nil {
		return err
	}
	c.Progress = func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) }
	r, err := c.measure(cmd.Context(), c.Options, length)
	if err != nil {
		return err
	}
	samples := func(w io.Writer) error { return writeJSON(w, r) }
	return errors.Join(r.Text(cmd.OutOrStdout()), write(c.json, samples), r.Check())
}

// restFlags adds the flags for how long a proxy is at rest. A sidecar gives back memory of its start for 7 s.
func (c *comparison) restFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.DurationVar(&c.Rest.Settle, "settle", 8*time.Second, "how long a proxy comes to rest after its start")
	f.DurationVar(&c.Rest.Duration, "idle", 5*time.Second, "how long a proxy is then measured at rest")
}

// addWork adds the loads of c.jobs.
func (c *comparison) addWork(length time.Duration) (err error) {
	var jobs []bench.Job
	for _, name := range c.jobs {
		jobs = append(jobs, bench.Job(name))
	}
	if !slices.Contains(jobs, bench.Resting) {
		c.Rest.Connections = 0
	}
	c.Loads, err = bench.WorkLoads(jobs, length)
	return err
}

func memoryCommand() *cobra.Command {
	var places bench.Places
	var count, links int
	cmd := &cobra.Command{
		Use:   "memory",
		Short: "Measure what connections, requests and links cost a sidecar in memory",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := bench.Find(places)
			if err != nil {
				return err
			}
			return bench.Memory(cmd.Context(), t, count, links, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.IntVar(&count, "count", 2000, "connections and requests")
	f.IntVar(&links, "links", 200, "endpoints that are called over links")
	f.StringVar(&places.Remora, "remora", "", remoraUsage)
	return cmd
}
