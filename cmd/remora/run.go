package main

import (
	"context"
	"errors"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/cmd/remora/starter"
	"github.com/remora-proxy/remora/proxy/handover"
	"github.com/remora-proxy/remora/proxy/reactor/engine"
	"github.com/remora-proxy/remora/sidecar"
)

// newRun returns the command "remora run": the sidecar itself.
func newRun() *cobra.Command {
	var file, dir, engineName string
	var watch, withoutFile bool
	var flags starter.Flags
	cmd := &cobra.Command{
		Use:   "run {-c FILE | --listen ADDR --to ADDR...}",
		Short: "Run the sidecar",
		Long: "Run the sidecar until SIGTERM or SIGINT, which drain it: it leaves the registry, finishes what is\n" +
			"in flight, for at most timeouts.drain, and exits with 0. A second signal ends it at once, with 1.\n" +
			"SIGHUP, and with --watch a change of the file, applies the configuration without dropping a\n" +
			"connection; one that can't be applied changes nothing. SIGUSR1 reopens the access log.\n" +
			"Started a second time with the same file, node.id and admin.address it replaces the running process\n" +
			"without dropping a connection; SIGUSR2 makes the running process start the program for this.\n\n" +
			"With --listen and --to it needs no file: all HTTP requests to one address go to the others. Other settings\n" +
			"have their defaults, and need a file, which \"remora init\" writes; so do reloads and hot restarts.",
		Args: cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) (err error) {
			withoutFile, err = starter.Check(cmd, "watch", "runtime-dir")
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Otherwise a log line without a reader would end the process. The other
			// commands may end if their output has no reader.
			signal.Ignore(syscall.SIGPIPE)
			sidecar.PaceStart()
			if withoutFile {
				return runWithout(cmd, &flags, engineName)
			}
			content := sidecar.OpenConfigFile(file) // before the load, so that no change is missed
			cfg, err := load(cmd, file)
			if err != nil {
				return err
			}
			kind, err := chooseEngine(engineName, cfg.Engine)
			if err != nil {
				return err
			}
			log, level, flush := sidecar.NewLog(&cfg.Log, cmd.ErrOrStderr())
			defer flushLog(flush)
			sidecar.LogWarnings(log, cfg)
			return sidecar.Run(sidecar.Options{
				Config: cfg, File: content, Watch: watch, Engine: kind, Version: versionOf(version, buildInfo()),
				Successors: handover.Path(dir, file, cfg.Node.ID, cfg.Admin.Address), Log: log, Level: level,
			})
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", "", "configuration file (YAML)")
	flags.Add(cmd)
	cmd.Flags().BoolVar(&watch, "watch", false, "apply the file when its content changes, as SIGHUP does")
	cmd.Flags().StringVar(&engineName, "engine", "", "engine that waits for sockets: "+strings.Join(engine.Names(), ", ")+"; default: that of the file")
	cmd.Flags().StringVar(&dir, "runtime-dir", handover.Dir(),
		"directory of the socket for hot restarts; empty for none")
	return cmd
}

// runWithout runs a sidecar without a configuration file.
func runWithout(cmd *cobra.Command, flags *starter.Flags, engineName string) error {
	cfg, err := flags.Config()
	if err != nil {
		return err
	}
	kind, err := chooseEngine(engineName, cfg.Engine)
	if err != nil {
		return err
	}
	log, level, flush := sidecar.NewLog(&cfg.Log, cmd.ErrOrStderr())
	defer flushLog(flush)
	log.Info("no configuration file: all requests go to one service", "listen", flags.Listen, "to", flags.To, "admin", flags.Admin)
	err = sidecar.Run(sidecar.Options{Config: cfg, Engine: kind, Version: versionOf(version, buildInfo()), Log: log, Level: level})
	if taken := (*sidecar.BindError)(nil); errors.As(err, &taken) {
		taken.Setting = starter.FlagOf(taken.Setting)
	}
	return err
}

// flushLog waits up to a second until the last lines of the log are written.
func flushLog(flush func(context.Context)) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	flush(ctx)
}
