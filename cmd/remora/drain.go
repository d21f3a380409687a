package main

import (
	"context"
	"sync"
	"time"

	"github.com/remora-proxy/remora/proxy/admin"
)

const (
	// leaveTimeout bounds how long the registry may take to confirm that this
	// sidecar is gone; after that its leases run out.
	leaveTimeout = 3 * time.Second

	// settle is how long a sidecar that has left the registry goes on serving
	// as if nothing was, so that consumers hear of it. Those that speak the
	// link are told again by GOAWAY; those that call a listener directly over
	// HTTP have nothing but this.
	settle = 200 * time.Millisecond

	// drainLook is how often a drain looks whether it is done.
	drainLook = 5 * time.Millisecond
)

// startDrain starts the drain unless it is under way: by a signal, or by POST
// /drain, after which the process stays. drained is closed at its end.
func (s *sidecar) startDrain() {
	s.begin(func() {
		s.shutDoor()
		s.changing.Lock() // for good: no reload from now on
		s.drain()
	})
}

// begin has drain run, unless one is under way.
func (s *sidecar) begin(drain func()) (begun bool) {
	s.draining.Do(func() {
		begun = true
		s.admin.Enter(admin.Draining)
		go func() {
			defer close(s.drained)
			drain()
			s.admin.Enter(admin.Drained)
		}()
	})
	return begun
}

// drain takes the sidecar out of use, for at most timeouts.drain: first out of
// the registry while it still serves, then no new work, then every open
// connection is brought to its end. Link ports stay open for as long as another
// sidecar may come for an answer that it asked for. What is left after that is
// cut off by stop.
func (s *sidecar) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Timeouts.Drain)
	defer cancel()
	if s.leave(s.announcements) {
		wait(ctx, settle)
	}
	// First, so that whoever finds the listeners closed finds the rest draining.
	s.proc.Drain()
	s.shut(func(l *listening) bool { return !l.entrance.DrainLast() })
	until(ctx, s.fetched)
	s.shut(func(l *listening) bool { return l.entrance.DrainLast() })
	s.finish(ctx)
}

// finish waits for what is left: of the process before too, for with this one, if it is
// the main process of a service, all are killed.
func (s *sidecar) finish(ctx context.Context) {
	if !until(ctx, s.idle) {
		s.log.Warn("timeouts.drain has passed with work left",
			"pending", s.proc.Pending(), "connections", s.engine.Stats().Inbound)
		return
	}
	s.log.Info("drained")
	s.waitForBefore(ctx)
}

// waitForBefore waits for the end of the process whose place this one took. That drains
// since then, so it ends in time.
func (s *sidecar) waitForBefore(ctx context.Context) {
	if s.before == nil {
		return
	}
	select {
	case <-s.before:
		return
	default:
	}
	s.log.Info("waiting for the end of the process before")
	select {
	case <-s.before:
	case <-ctx.Done():
	}
}

// shut closes the listeners that are so.
func (s *sidecar) shut(so func(l *listening) bool) {
	for _, l := range s.listeners {
		if so(l) {
			s.close(l)
		}
	}
}

func (s *sidecar) close(l *listening) {
	if err := l.close(); err != nil {
		s.log.Warn("listener not closed", "listener", l.name, "error", err)
	}
}

// fetched tells whether no answer waits for another sidecar to come for it, and
// none will: the order matters.
func (s *sidecar) fetched() bool { return s.proc.Links() == 0 && s.streams.Parked() == 0 }

// idle tells whether nothing is in flight and nobody is connected. What is
// accepted counts as connected from then on, so nothing slips through.
func (s *sidecar) idle() bool {
	return s.engine.Stats().Inbound == 0 && s.proc.Pending() == 0
}

// leave takes registrations out of the registry, all at once, and tells whether
// there were any.
func (s *sidecar) leave(all []*announcement) bool {
	// Not part of timeouts.drain: even when that is 0, a lease that is revoked
	// spares consumers lease_ttl of errors.
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	var tasks sync.WaitGroup
	for _, a := range all {
		tasks.Go(func() {
			if err := a.leave(ctx); err != nil {
				s.log.Warn("not withdrawn; the lease runs out by itself", "service", a.reg.Service, "error", err)
			}
		})
	}
	tasks.Wait()
	return len(all) > 0
}

// wait waits for d, or until ctx is done.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// until waits for what ok tells, and tells whether that came before ctx was done.
func until(ctx context.Context, ok func() bool) bool {
	look := time.NewTicker(drainLook)
	defer look.Stop()
	for !ok() {
		select {
		case <-look.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}
