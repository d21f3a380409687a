package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/lab/demo"
	"github.com/remora-proxy/remora/lab/replica"
)

// demoFlags are those that are not in demo.Options.
type demoFlags struct{ json, html, keep string }

func demoCommand() *cobra.Command {
	var (
		o     demo.Options
		flags demoFlags
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

The sidecars are real processes, with configuration files that --keep leaves for you to read
and to deploy. All processes are stopped at the end, on Ctrl-C and on failure.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDemo(cmd, o, flags) },
	}
	f := cmd.Flags()
	f.Float64Var(&o.Seconds, "seconds", 15, "length of each of the three measurements")
	f.Float64Var(&o.Rate, "rate", 1000, "requests per second")
	f.StringVar((*string)(&o.Mode), "mode", string(replica.Stall), "what disturbs the replicas: stall, gc or correlated (see remora-lab replica --help); shadow: stall, with a forecast")
	f.BoolVar(&o.GRPC, "grpc", false, "make unary gRPC calls instead of requests of HTTP/1.1")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of the replicas' freezes")
	f.StringVar(&flags.json, "json", "", "write the figures to this file")
	f.StringVar(&flags.html, "html", "", "write a page with the latency curves to this file")
	f.StringVar(&flags.keep, "keep", "", "directory that keeps configuration files and logs")
	f.StringVar(&o.Remora, "remora", "", "the remora binary (default: beside this one, or built from the source tree)")
	return cmd
}

func runDemo(cmd *cobra.Command, o demo.Options, flags demoFlags) (err error) {
	if o.Self, err = os.Executable(); err != nil {
		return err
	}
	if o.Dir = flags.keep; o.Dir != "" {
		err = os.MkdirAll(o.Dir, 0o755)
	} else if o.Dir, err = os.MkdirTemp("", "remora-demo-"); err == nil {
		defer os.RemoveAll(o.Dir)
	}
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	o.Out = demo.NewScreen(out, isTerminal(out))
	r, err := demo.Run(cmd.Context(), o)
	o.Out.Clear()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%s\n%s%s", r.Table(), r.ForecastTable(), r.Plot(72, 18))
	if flags.keep != "" {
		fmt.Fprintf(out, "\nconfiguration files and logs: %s\n", flags.keep)
	}
	writeReport := func(w io.Writer) error { return writeJSON(w, r) }
	return errors.Join(write(flags.json, writeReport), write(flags.html, r.HTML))
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
