package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/lab/history"
	"github.com/remora-proxy/remora/lab/history/record"
)

func historyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "history",
		Short: "Record what a registry had and what sidecars used, and check that",
	}
	cmd.AddCommand(recordCommand(), checkCommand())
	return cmd
}

func recordCommand() *cobra.Command {
	var etcds []string
	var prefix, token string
	sidecars := map[string]string{}
	cmd := &cobra.Command{
		Use:   "record FILE",
		Short: "Record changes of etcd and views of sidecars, until a signal",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			out, err := os.OpenFile(args[0], os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, out.Close()) }()
			var all []record.Sidecar
			for name, admin := range sidecars {
				all = append(all, record.Sidecar{Name: name, Admin: admin, Token: token})
			}
			return recordUntil(cmd.Context(), etcds, prefix, record.NewLog(out), all)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&etcds, "etcd", nil, "addresses of etcd; without them only views are recorded, as where no etcd can be reached")
	f.StringVar(&prefix, "prefix", "/remora/services", "prefix of the keys")
	f.StringToStringVar(&sidecars, "sidecar", nil, "names of sidecars and addresses of their admin APIs, NAME=ADDRESS")
	f.StringVar(&token, "token", "", "token of the admin APIs")
	return cmd
}

// recordUntil records until ctx ends. It then waits for the changes of etcd before that. Without etcds it records views alone.
func recordUntil(ctx context.Context, etcds []string, prefix string, log *record.Log, sidecars []record.Sidecar) error {
	finish := func(context.Context) error { return log.Err() }
	if len(etcds) > 0 {
		client, err := record.Client(etcds)
		if err != nil {
			return err
		}
		defer client.Close()
		r, err := record.Start(ctx, client, prefix, log)
		if err != nil {
			return err
		}
		finish = r.Finish
	}
	stop := record.Follow(log, sidecars...)
	<-ctx.Done()
	stop()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return finish(last)
}

func checkCommand() *cobra.Command {
	b := history.DefaultBounds
	access := map[string]string{}
	var services []string
	cmd := &cobra.Command{
		Use:   "check FILE...",
		Short: "Check a history, and print each violation; the package lab/history has the rules",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			h, err := readHistory(args, access, services)
			if err != nil {
				return err
			}
			found := h.Check(b)
			for _, v := range found {
				fmt.Fprintln(cmd.OutOrStdout(), v)
			}
			fmt.Fprintln(cmd.OutOrStdout(), h.Summary())
			if len(found) > 0 {
				return fmt.Errorf("%d violations", len(found))
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.DurationVar(&b.Seen, "seen", b.Seen, "how long a sidecar may take to use a change")
	f.DurationVar(&b.Grace, "grace", b.Grace, "for how long a service keeps its last endpoints")
	f.DurationVar(&b.Return, "return", b.Return, "how long a sidecar may take to put its key again")
	f.StringToStringVar(&access, "access", nil, "names of sidecars and their access logs, NAME=FILE")
	f.StringSliceVar(&services, "service", nil, "services of the access logs that are in the registry")
	return cmd
}

// readHistory reads files of a history, and access logs of sidecars.
func readHistory(files []string, access map[string]string, services []string) (*history.History, error) {
	var h history.History
	read := func(name string, take func(io.Reader) error) error {
		in, err := os.Open(name)
		if err != nil {
			return err
		}
		defer in.Close()
		if err := take(in); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
	for _, name := range files {
		if err := read(name, h.Read); err != nil {
			return nil, err
		}
	}
	for sidecar, name := range access {
		if len(services) == 0 {
			return nil, errors.New("want --service with --access")
		}
		if err := read(name, func(in io.Reader) error { return h.ReadAccessLog(sidecar, services, in) }); err != nil {
			return nil, err
		}
	}
	return &h, nil
}
