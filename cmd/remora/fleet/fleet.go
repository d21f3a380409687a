// Package fleet has the commands that steer a fleet of sidecars by overlays in etcd.
//
//	fleet.go    the command, and its connection to etcd
//	change.go   set, rollout and rollback
//	status.go   status
//	diff.go     diff
package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/fleet/store"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/sidecar"
)

// Load reads a configuration file, and prints its errors.
type Load func(cmd *cobra.Command, file string, more ...config.Inspect) (*config.Config, error)

// Report prints the errors of a file, and returns the error of the command.
type Report func(cmd *cobra.Command, errs config.Errors) error

// defaultPrefix is where the keys are without --prefix.
const defaultPrefix = "/remora/config"

// timeout bounds the requests of a command to etcd.
const timeout = 10 * time.Second

// New returns the command "remora fleet".
func New(load Load, report Report) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fleet {set FILE | status | rollout | rollback [REVISION] | diff}",
		Short: "Steer a fleet of sidecars by overlays in etcd",
		Long: "Change settings of all sidecars whose configuration has config.etcd. An overlay is YAML with the keys of the\n" +
			"configuration, which each sidecar lays on its own file. Each overlay that is set is a revision.\n\n" +
			"The keys in etcd are found by --etcd and --prefix, or by -c in the configuration file of a sidecar.",
		Args: func(cmd *cobra.Command, _ []string) error {
			return fmt.Errorf("expected a command; %s --help lists them", cmd.CommandPath())
		},
		Run: func(*cobra.Command, []string) {}, // so that Args is asked
	}
	where := &location{load: load}
	cmd.PersistentPreRunE = func(*cobra.Command, []string) error { return where.check() }
	cmd.PersistentFlags().StringSliceVar(&where.etcd, "etcd", nil, "addresses of etcd, as in registry.etcd.endpoints")
	cmd.PersistentFlags().StringVar(&where.prefix, "prefix", "", "start of the keys, as in config.etcd (default "+defaultPrefix+")")
	cmd.PersistentFlags().StringVarP(&where.file, "config", "c", "", "configuration file that has them, with TLS and user of etcd")
	cmd.AddCommand(newSet(where, report), newStatus(where), newRollout(where), newRollback(where), newDiff(where))
	return cmd
}

// location says where the keys of the fleet are.
type location struct {
	load   Load
	etcd   []string
	prefix string
	file   string
}

// check reports flags that name no place, or two.
func (l *location) check() error {
	switch {
	case l.file != "" && (len(l.etcd) > 0 || l.prefix != ""):
		return errors.New("expected --etcd and --prefix, or -c, got both")
	case l.file == "" && len(l.etcd) == 0:
		return errors.New("expected --etcd with the address of etcd, or -c with a configuration file")
	}
	return nil
}

// config returns a configuration with the settings of etcd.
func (l *location) config(cmd *cobra.Command) (*config.Config, error) {
	if l.file != "" {
		cfg, err := l.load(cmd, l.file)
		if err == nil && !cfg.Overlays.Enabled() {
			err = fmt.Errorf("%s has no config.etcd", l.file)
		}
		return cfg, err
	}
	quoted := make([]string, len(l.etcd))
	for i, endpoint := range l.etcd {
		quoted[i] = fmt.Sprintf("%q", endpoint)
	}
	text := fmt.Sprintf("registry: {etcd: {endpoints: [%s], tls: {%s}}}\nconfig: {etcd: %q}\n",
		strings.Join(quoted, ", "), systemCA(l.etcd), cmp.Or(l.prefix, defaultPrefix))
	cfg, err := config.Parse("--etcd, --prefix", []byte(text), func(string) (string, bool) { return "", false })
	if err != nil {
		return nil, err
	}
	return cfg, nil
}

// systemCA returns the settings of TLS for endpoints that use it.
func systemCA(endpoints []string) string {
	for _, e := range endpoints {
		if strings.HasPrefix(e, "https://") {
			return "ca: " + config.SystemCA
		}
	}
	return ""
}

// with calls f with the keys of the fleet. The context ends after a signal or the timeout.
func (l *location) with(cmd *cobra.Command, f func(ctx context.Context, s *store.Store) error) error {
	cfg, err := l.config(cmd)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	s, closeStore, err := sidecar.OpenStore(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer closeStore()
	return f(ctx, s)
}

// operator returns who changes the head, for the eyes of others.
func operator() string { return cmp.Or(os.Getenv("USER"), os.Getenv("LOGNAME")) }
