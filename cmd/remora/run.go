package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/cmd/remora/starter"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/handover"
	"github.com/remora-proxy/remora/proxy/reactor/engine"
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
			if withoutFile {
				return runWithout(cmd, &flags, engineName)
			}
			content := openConfigFile(file) // before the load, so that no change is missed
			cfg, err := load(cmd, file)
			if err != nil {
				return err
			}
			kind, err := chooseEngine(engineName, cfg.Engine)
			if err != nil {
				return err
			}
			log, level, flush := newLog(&cfg.Log, cmd.ErrOrStderr())
			defer flushLog(flush)
			logWarnings(log, cfg)
			return run(cfg, kind, content, watch, handover.Path(dir, file, cfg.Node.ID, cfg.Admin.Address), log, level)
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", "", "configuration file (YAML)")
	flags.Add(cmd)
	cmd.Flags().BoolVar(&watch, "watch", false, "apply the file when its content changes, as SIGHUP does")
	cmd.Flags().StringVar(&engineName, "engine", "", "engine that waits for sockets: "+strings.Join(engine.Names(), ", ")+"; default: that of the file")
	cmd.Flags().StringVar(&dir, "runtime-dir", runtimeDir(),
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
	log, level, flush := newLog(&cfg.Log, cmd.ErrOrStderr())
	defer flushLog(flush)
	log.Info("no configuration file: all requests go to one service", "listen", flags.Listen, "to", flags.To, "admin", flags.Admin)
	err = run(cfg, kind, nil, false, "", log, level)
	if taken := (*bindError)(nil); errors.As(err, &taken) {
		taken.setting = starter.FlagOf(taken.setting)
	}
	return err
}

// errInterrupted is returned after a second signal.
var errInterrupted = errors.New("ended by a second signal before the drain was done")

// run runs a sidecar until it is told to end. content is the file that cfg came from, or nil.
func run(cfg *config.Config, kind engine.Kind, content *configFile, watch bool, restartPath string, log *slog.Logger, level *slog.LevelVar) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	reload := make(chan os.Signal, 1) // several signals at once mean one reload
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	rotate := make(chan os.Signal, 1)
	signal.Notify(rotate, syscall.SIGUSR1)
	defer signal.Stop(rotate)
	restart := make(chan os.Signal, 1)
	signal.Notify(restart, syscall.SIGUSR2)
	defer signal.Stop(restart)
	s, err := startUnless(signals, func(ctx context.Context) (*sidecar, error) { return start(ctx, cfg, kind, restartPath, log, level) })
	if s == nil {
		return err // nil if a signal ended the start
	}
	notify("READY=1")
	if content != nil {
		go content.run(s.ended, watch, reload, s.reload)
	} else {
		go each(s.ended, reload, func() { log.Warn("nothing to reload: this sidecar has no configuration file") })
	}
	go each(s.ended, rotate, s.access.reopen)
	go each(s.ended, restart, s.restart)
	return serveUntil(s, signals)
}

// each calls f after each signal, until ctx ends.
func each(ctx context.Context, signals <-chan os.Signal, f func()) {
	for {
		select {
		case <-signals:
			f()
		case <-ctx.Done():
			return
		}
	}
}

// startUnless calls start. A signal before the sidecar serves ends the start, which is
// no error; a second signal ends it at once. A signal that is too late for this goes
// back to signals.
func startUnless(signals chan os.Signal, start func(context.Context) (*sidecar, error)) (*sidecar, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var s *sidecar
	done := make(chan error, 1)
	go func() {
		started, err := start(ctx)
		s = started
		done <- err
	}()
	var early os.Signal
	for {
		select {
		case sig := <-signals:
			if early != nil {
				return nil, errInterrupted
			}
			early = sig
			cancel()
		case err := <-done:
			switch {
			case early == nil || err != nil && !errors.Is(err, context.Canceled):
				return s, err
			case err != nil:
				return nil, nil
			}
			select {
			case signals <- early:
			default: // signals is full
			}
			return s, nil
		}
	}
}

// serveUntil waits for the first signal, which starts a drain, or for a successor, which
// does too. It then waits for the end of the drain, or for a second signal.
func serveUntil(s *sidecar, signals <-chan os.Signal) error {
	signalled := false
	select {
	case sig := <-signals:
		signalled = true
		s.log.Info("draining", "signal", sig.String(), "timeout", s.proc.Config().Timeouts.Drain)
		notify("STOPPING=1")
		s.startDrain()
	case <-s.replaced:
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-s.drained
		s.stop()
	}()
	for {
		select {
		case <-done:
			s.log.Info("ended")
			return nil
		case sig := <-signals:
			if signalled {
				return errInterrupted
			}
			signalled = true // a signal to all processes of a service is this one's first
			s.log.Info("draining already after a hot restart", "signal", sig.String())
		}
	}
}

// flushLog waits up to a second until the last lines of the log are written.
func flushLog(flush func(context.Context)) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	flush(ctx)
}

// notifyTimeout bounds how long notify waits for a service manager that does not read.
const notifyTimeout = time.Second

// notify sends a state to the service manager, if there is one (sd_notify(3)). There is
// no response, and a failure has no effect.
func notify(state string) {
	to := os.Getenv("NOTIFY_SOCKET")
	if to == "" {
		return
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: to, Net: "unixgram"})
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.SetWriteDeadline(time.Now().Add(notifyTimeout))
	_, _ = c.Write([]byte(state))
}
