package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/spf13/cobra"
)

// newRun is "remora run": the sidecar itself.
func newRun() *cobra.Command {
	var file, dir string
	var watch bool
	cmd := &cobra.Command{
		Use:   "run -c FILE",
		Short: "Run the sidecar",
		Long: "Run the sidecar until SIGTERM or SIGINT, which drain it: it leaves the registry, finishes what is\n" +
			"in flight, for at most timeouts.drain, and exits with 0. A second signal ends it at once, with 1.\n" +
			"SIGHUP, and with --watch a change of the file, applies the configuration anew without dropping a\n" +
			"connection; one that can't be applied changes nothing. SIGUSR1 opens the access log anew.\n" +
			"Started a second time with the same file, node.id and admin.address it takes the place of the process\n" +
			"that runs, without dropping a connection; SIGUSR2 has that one start the program anew for this.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Else the first line of the log that nobody reads any more would end the process.
			// The other commands have nothing to do without a reader.
			signal.Ignore(syscall.SIGPIPE)
			content := watchFile(file) // before it is read: no change is missed
			cfg, err := load(cmd, file)
			if err != nil {
				return err
			}
			log, level, flush := newLog(&cfg.Log, cmd.ErrOrStderr())
			defer flushLog(flush)
			return run(cfg, content, watch, doorPath(dir, file, cfg), log, level)
		},
	}
	configFlag(cmd, &file)
	cmd.Flags().BoolVar(&watch, "watch", false, "apply the file when its content changes, as SIGHUP does")
	cmd.Flags().StringVar(&dir, "runtime-dir", runtimeDir(),
		"directory of the socket at which a hot restart takes over; empty: there is none")
	return cmd
}

// errInterrupted is the end by a second signal.
var errInterrupted = errors.New("ended by a second signal, before all was drained")

func run(cfg *config.Config, content *fileWatch, watch bool, door string, log *slog.Logger, level *slog.LevelVar) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	asked := make(chan os.Signal, 1) // one that waits stands for all that come meanwhile
	signal.Notify(asked, syscall.SIGHUP)
	defer signal.Stop(asked)
	rotated := make(chan os.Signal, 1)
	signal.Notify(rotated, syscall.SIGUSR1)
	defer signal.Stop(rotated)
	restart := make(chan os.Signal, 1)
	signal.Notify(restart, syscall.SIGUSR2)
	defer signal.Stop(restart)
	s, err := startUnless(signals, func(ctx context.Context) (*sidecar, error) { return start(ctx, cfg, door, log, level) })
	if s == nil {
		return err // nil: a signal came first
	}
	notify("READY=1")
	go s.followFile(content, watch, asked)
	go s.rotate(rotated)
	go s.followRestarts(restart)
	return s.serveUntil(signals)
}

// startUnless calls start unless a signal ends that before it has served, which is no
// error, as at the end of a drain; a second signal does at once. One that comes too late
// for that waits in signals.
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
			default: // more than one wait there
			}
			return s, nil
		}
	}
}

// serveUntil waits for the drain that the first signal, or a successor, starts, and for
// its end or that by the second signal.
func (s *sidecar) serveUntil(signals <-chan os.Signal) error {
	asked := false
	select {
	case sig := <-signals:
		asked = true
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
			if asked {
				return errInterrupted
			}
			asked = true // whoever ends all processes at once has not waited for this one
			s.log.Info("draining already, for it was replaced", "signal", sig.String())
		}
	}
}

// flushLog gives the last lines of the log a moment to leave.
func flushLog(flush func(context.Context)) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	flush(ctx)
}

// notifyTimeout bounds how long a service manager that does not read holds up what
// it is told of.
const notifyTimeout = time.Second

// notify tells the service manager of a change, if there is one that wants to know
// (sd_notify(3)). It has no answer, and nothing to do if it fails.
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
