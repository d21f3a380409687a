package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/lab/load"
	"github.com/remora-proxy/remora/lab/steal"
)

func loadCommand() *cobra.Command {
	var (
		o       load.Options
		each    bool
		asJSON  bool
		headers []string
		body    string
		log     string
	)
	cmd := &cobra.Command{
		Use:   "load URL...",
		Short: "Send HTTP/1.1 load and measure latency from the intended send times",
		Long: `Send HTTP/1.1 load to one or more URLs, in turn.

The loop is open: requests go out at --rate whatever becomes of those before, and latency
counts from the moment a request was meant to be sent, so that a server which freezes
can't hide it. --closed makes it a closed loop: each connection sends as soon as it has
its answer.

Each request carries an x-nonce header, and an answer without the same one is an error
(--no-nonce for servers that do not send it back). The report tells the generator's own
part of the latency: the send lag.

--steal also watches the machine's processors, and tells latencies once more without the
requests that were due within 5 ms of a moment in which one stood still for some 2 ms, or
as long after it as it took: on a virtual machine whose host is busy they say little about
what is measured. It takes CAP_SYS_NICE.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, urls []string) (err error) {
			for _, h := range headers {
				name, value, ok := strings.Cut(h, ":")
				if !ok {
					return fmt.Errorf("header %q: want NAME:VALUE", h)
				}
				o.Header = append(o.Header, load.Header{Name: name, Value: strings.TrimSpace(value)})
			}
			if body != "" {
				if o.Body, err = os.ReadFile(body); err != nil {
					return err
				}
			}
			if log != "" {
				var end func() error
				if o.Log, end, err = createLog(log); err != nil {
					return err
				}
				defer func() { err = errors.Join(err, end()) }()
			}
			if each {
				return runEach(cmd, o, urls, asJSON)
			}
			o.Targets = urls
			_, err = runLoad(cmd, o, asJSON)
			return err
		},
	}
	f := cmd.Flags()
	f.Float64Var(&o.Rate, "rate", 1000, "requests per second over all URLs")
	f.BoolVar(&o.Poisson, "poisson", false, "random gaps (exponential) instead of equal ones")
	f.BoolVar(&o.Closed, "closed", false, "closed loop")
	f.Int64Var(&o.Requests, "requests", 0, "closed loop: go on past --duration until so many have been sent")
	f.DurationVar(&o.Duration, "duration", 10*time.Second, "how long to measure")
	f.DurationVar(&o.Warmup, "warmup", 2*time.Second, "load before it that is not counted")
	f.DurationVar(&o.Timeout, "timeout", 2*time.Second, "of one request, from its intended send time")
	f.IntVar(&o.Connections, "connections", 64, "connections opened at the start")
	f.IntVar(&o.MaxConnections, "max-connections", 1024, "bound of an open loop that finds all busy")
	f.StringVar(&o.Method, "method", "POST", "HTTP method")
	f.StringVar(&body, "body", "", "file with the body (default: 300 bytes of JSON)")
	f.StringArrayVar(&headers, "header", nil, "NAME:VALUE to send; repeatable")
	f.StringVar(&log, "log", "", "file for a line on each request: when it was due in Unix µs, its latency in µs,\n"+
		"its status, kind of error and x-remora-error")
	f.BoolVar(&o.NoNonce, "no-nonce", false, "do not expect x-nonce in the answers")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of nonces and random gaps")
	f.BoolVar(&each, "each", false, "the load to one URL after the other, with a report for each and a table of all")
	f.BoolVar(&o.Samples, "steal", false, "tell latencies apart from moments in which a processor stood still")
	f.BoolVar(&asJSON, "json", false, "print JSON, with the latency curve and histogram")
	return cmd
}

// createLog opens a buffered file; end writes what is left and closes it.
func createLog(path string) (w io.Writer, end func() error, err error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, nil, err
	}
	b := bufio.NewWriter(f)
	return b, func() error { return errors.Join(b.Flush(), f.Close()) }, nil
}

func runEach(cmd *cobra.Command, o load.Options, urls []string, asJSON bool) error {
	var results []*load.Result
	for _, url := range urls {
		if !asJSON {
			fmt.Fprintf(cmd.OutOrStdout(), "%s\n", url)
		}
		o.Targets = []string{url}
		res, err := runLoad(cmd, o, asJSON)
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

func runLoad(cmd *cobra.Command, o load.Options, asJSON bool) (*load.Result, error) {
	res, err := measure(cmd.Context(), o)
	if res == nil {
		return nil, err
	}
	if asJSON {
		j, jerr := res.JSON()
		enc := json.NewEncoder(cmd.OutOrStdout())
		enc.SetIndent("", "  ")
		return res, errors.Join(err, jerr, enc.Encode(j))
	}
	return res, errors.Join(err, res.Text(cmd.OutOrStdout()))
}

// measure runs the load, and beside it what watches the processors if samples are
// kept.
func measure(ctx context.Context, o load.Options) (*load.Result, error) {
	if !o.Samples {
		return load.Run(ctx, o)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	watcher, err := steal.Start(self, stealCommand().Name())
	if err != nil {
		return nil, err
	}
	res, err := load.Run(ctx, o)
	stops, werr := watcher.Stop()
	if res != nil {
		res.Stops = stops
	}
	return res, errors.Join(err, werr)
}
