package sidecar

import (
	"context"
	"errors"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// errInterrupted is returned after a second signal.
var errInterrupted = errors.New("ended by a second signal before the drain was done")

// Run runs a sidecar until it is told to end.
func Run(o Options) error {
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
	s, err := startUnless(signals, func(ctx context.Context) (*Sidecar, error) { return start(ctx, o) })
	if s == nil {
		return err // nil if a signal ended the start
	}
	notify("READY=1")
	if o.File != nil {
		go o.File.run(s.ended, o.Watch, reload, s.reloads.reload)
	} else {
		go each(s.ended, reload, func() { o.Log.Warn("nothing to reload: this sidecar has no configuration file") })
	}
	go each(s.ended, rotate, s.access.reopen)
	go each(s.ended, restart, s.succession.restart)
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
func startUnless(signals chan os.Signal, start func(context.Context) (*Sidecar, error)) (*Sidecar, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var s *Sidecar
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
func serveUntil(s *Sidecar, signals <-chan os.Signal) error {
	signalled := false
	select {
	case sig := <-signals:
		signalled = true
		s.log.Info("draining", "signal", sig.String(), "timeout", s.proc.Config().Timeouts.Drain)
		notify("STOPPING=1")
		s.startDrain()
	case <-s.succession.replaced:
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
