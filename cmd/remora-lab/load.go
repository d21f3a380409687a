package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/lab/load"
	"github.com/remora-proxy/remora/lab/steal"
)

// loadFlags are those that are not in load.Options.
type loadFlags struct {
	each, json bool
	headers    []string
	body, log  string
	stages     load.Stages
	sidecars   []string
}

func loadCommand() *cobra.Command {
	var (
		o     load.Options
		flags loadFlags
	)
	cmd := &cobra.Command{
		Use:   "load URL...",
		Short: "Send load of HTTP/1.1 or gRPC and measure latency from the intended send times",
		Long: `Send load to one or more URLs, in turn: of HTTP/1.1 to http://host[:port]/path, and of unary
gRPC calls to grpc://host:port[/service/method], without TLS.

The loop is open: requests go out at --rate whatever becomes of earlier ones, and latency
counts from the intended send time of a request, so that a server which freezes can't hide
it. --closed makes it a closed loop: each connection sends as soon as it has its response.

Each request of HTTP/1.1 carries an x-nonce header, and a response without the same one is an error
(--no-nonce for servers that do not send it back). The report shows the generator's own part
of the latency: the send lag.

--steal also watches the machine's processors. The latencies are then reported a second time,
without the requests that were due within 5 ms of a moment in which a processor stood still,
or after it for as long as it took. Such moments are frequent in a virtual machine whose host
is busy, and say little about the server. --steal needs CAP_SYS_NICE.

--stages measures closed loops of several numbers of connections against their ceiling: with
requests that take --delay, n connections can't get more than n / --delay responses a second.
It prints a Markdown table with the CPU time of each --sidecar per response, and as the score
the best rate. Responses other than 2xx do not count.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, urls []string) error { return runLoad(cmd, o, flags, urls) },
	}
	f := cmd.Flags()
	f.Float64Var(&o.Rate, "rate", 1000, "requests per second over all URLs")
	f.BoolVar(&o.Poisson, "poisson", false, "random gaps (exponential) instead of equal ones")
	f.BoolVar(&o.Closed, "closed", false, "closed loop")
	f.Int64Var(&o.Requests, "requests", 0, "closed loop: go on after --duration until so many have been sent")
	f.DurationVar(&o.Duration, "duration", 10*time.Second, "how long to measure")
	f.DurationVar(&o.Warmup, "warmup", 2*time.Second, "load before it that is not counted")
	f.DurationVar(&o.Timeout, "timeout", 2*time.Second, "of one request, from its intended send time")
	f.IntVar(&o.Connections, "connections", 64, "connections opened at the start")
	f.IntVar(&o.MaxConnections, "max-connections", 1024, "limit of an open loop whose connections are all busy")
	f.StringVar(&o.Method, "method", "POST", "method of HTTP/1.1")
	f.StringVar(&flags.body, "body", "", "file with the body (default: 300 bytes of JSON)")
	f.StringArrayVar(&flags.headers, "header", nil, "NAME:VALUE to send; repeatable")
	f.StringVar(&flags.log, "log", "", "file for a line on each request: when it was due in Unix µs, its latency in µs,\n"+
		"its status, kind of error, x-remora-error, x-nonce, and the µs until it was written")
	f.BoolVar(&o.NoNonce, "no-nonce", false, "do not expect x-nonce in the responses")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of nonces and random gaps")
	f.BoolVar(&flags.each, "each", false, "the load to one URL after the other, with a report for each and a table of all")
	f.BoolVar(&o.Samples, "steal", false, "also report latencies without the requests that a stop of a processor disturbed")
	f.BoolVar(&flags.json, "json", false, "print JSON, with the latency curve and histogram")
	f.IntSliceVar(&flags.stages.Connections, "stages", nil, "numbers of connections of closed loops, each for --duration")
	f.DurationVar(&flags.stages.Delay, "delay", 50*time.Millisecond, "stages: what a request takes at the service")
	f.DurationVar(&flags.stages.Ready, "ready", time.Minute, "stages: how long the URL may take to respond with 2xx at the start")
	f.StringArrayVar(&flags.sidecars, "sidecar", nil, "stages: NAME=HOST:PORT of an admin API, for its CPU time; repeatable")
	f.StringVar(&flags.stages.Token, "token", "", "stages: token of the admin APIs")
	return cmd
}

func runLoad(cmd *cobra.Command, o load.Options, flags loadFlags, urls []string) (err error) {
	for _, h := range flags.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return fmt.Errorf("header %q: want NAME:VALUE", h)
		}
		o.Header = append(o.Header, load.Header{Name: name, Value: strings.TrimSpace(value)})
	}
	if flags.body != "" {
		if o.Body, err = os.ReadFile(flags.body); err != nil {
			return err
		}
	}
	if flags.log != "" {
		f, failed := os.Create(flags.log)
		if failed != nil {
			return failed
		}
		log := bufio.NewWriter(f)
		o.Log = log
		defer func() { err = errors.Join(err, log.Flush(), f.Close()) }()
	}
	o.Targets = urls
	switch {
	case cmd.Flags().Changed("stages"):
		return runStages(cmd, o, flags)
	case flags.each:
		return runEach(cmd, o, flags.json)
	}
	_, err = runOnce(cmd, o, flags.json)
	return err
}

func runStages(cmd *cobra.Command, o load.Options, flags loadFlags) error {
	for _, s := range flags.sidecars {
		name, admin, ok := strings.Cut(s, "=")
		if !ok {
			return fmt.Errorf("sidecar %q: want NAME=HOST:PORT", s)
		}
		flags.stages.Sidecars = append(flags.stages.Sidecars, load.Sidecar{Name: name, Admin: admin})
	}
	stages, err := flags.stages.Run(cmd.Context(), o)
	if err != nil {
		return err
	}
	return flags.stages.Text(cmd.OutOrStdout(), stages)
}

func runEach(cmd *cobra.Command, o load.Options, asJSON bool) error {
	urls := o.Targets
	var results []*load.Result
	for _, url := range urls {
		if !asJSON {
			fmt.Fprintf(cmd.OutOrStdout(), "%s\n", url)
		}
		o.Targets = []string{url}
		res, err := runOnce(cmd, o, asJSON)
		if err != nil {
			return err
		}
		results = append(results, res)
	}
	if asJSON {
		return nil
	}
	return load.Compare(cmd.OutOrStdout(), urls, results)
}

func runOnce(cmd *cobra.Command, o load.Options, asJSON bool) (*load.Result, error) {
	res, err := measure(cmd.Context(), o)
	if res == nil {
		return nil, err
	}
	if asJSON {
		j, jerr := res.JSON()
		return res, errors.Join(err, jerr, writeJSON(cmd.OutOrStdout(), j))
	}
	return res, errors.Join(err, res.Text(cmd.OutOrStdout()))
}

// measure runs the load. If samples are kept, it also watches the processors.
func measure(ctx context.Context, o load.Options) (res *load.Result, err error) {
	if !o.Samples {
		return load.Run(ctx, o)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	stops, err := steal.Watch(func() (err error) {
		res, err = load.Run(ctx, o)
		return err
	}, self, stealCommand().Name())
	if res != nil {
		res.Stops = stops
	}
	return res, err
}
