package sidecar

import (
	"context"
	"time"

	"github.com/remora-proxy/remora/proxy/admin"
)

const (
	// removeTimeout bounds how long the registry may take to remove registrations.
	// After that their leases expire.
	removeTimeout = 3 * time.Second

	// noticeDelay is how long a sidecar still serves after its registrations were
	// removed, so that consumers notice. Consumers on a link also get a GOAWAY; those
	// that call a listener over HTTP get no other notice.
	noticeDelay = 200 * time.Millisecond

	// pollInterval is the time between two checks whether a drain is done.
	pollInterval = 5 * time.Millisecond
)

// startDrain starts the drain unless one has started: after a signal, or after POST
// /drain, which doesn't end the process. The end of the drain closes drained.
func (s *Sidecar) startDrain() {
	s.beginDrain(func() {
		s.succession.close()
		s.leave()         // a reload that waits for endpoints gives up
		s.changing.Lock() // never unlocked, so that no reload follows
		s.drain()
	})
}

// beginDrain starts drain on its own goroutine, and reports whether it did: there is
// only one drain.
func (s *Sidecar) beginDrain(drain func()) (begun bool) {
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

// drain takes the sidecar out of use. It removes the registrations while the sidecar still serves. Then, in at most
// timeouts.drain, it accepts no connections, tells the peers of the open ones to leave, serves what they still send, and
// waits until each connection has ended. Link ports stay open as long as another sidecar may fetch a parked response.
// stop cuts off the rest.
func (s *Sidecar) drain() {
	removed := s.registrations.remove(s.registrations.all)
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Timeouts.Drain)
	defer cancel()
	if removed {
		sleep(ctx, noticeDelay)
	}
	// Before the listeners close: a client that finds them closed must find the open
	// connections draining.
	s.proc.Drain()
	s.listeners.closeWhere(func(l *openListener) bool { return !l.core.DrainLast() })
	poll(ctx, s.parkedFetched)
	s.listeners.closeWhere(func(l *openListener) bool { return l.core.DrainLast() })
	s.awaitIdle(ctx)
}

// drainReplaced is the drain of a process whose successor serves. It takes at most
// timeouts.drain. The successor has the sockets, so consumers need no notice first.
func (s *Sidecar) drainReplaced() {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Timeouts.Drain)
	defer cancel()
	s.listeners.closeWhere(func(*openListener) bool { return true })
	s.proc.Retire()
	s.registrations.remove(s.registrations.all)
	poll(ctx, s.parkedFetched)
	s.awaitIdle(ctx)
}

// awaitIdle waits until nothing is in flight, and for the end of the predecessor: if
// this process is the main process of a service, its end kills the others.
func (s *Sidecar) awaitIdle(ctx context.Context) {
	if !poll(ctx, s.idle) {
		s.log.Warn("timeouts.drain has passed with work left",
			"pending", s.proc.Pending(), "connections", s.reactor.Stats().Inbound)
		return
	}
	s.log.Info("drained")
	s.succession.awaitPredecessor(ctx)
}

// parkedFetched reports whether no response is parked for another sidecar, and none
// will be. It counts links first: without one, no further response is parked.
func (s *Sidecar) parkedFetched() bool { return s.proc.Links() == 0 && s.streams.Parked() == 0 }

// idle reports whether no request is in flight and no client is connected. A connection
// counts from its accept on, so there is no gap between the two.
func (s *Sidecar) idle() bool {
	return s.reactor.Stats().Inbound == 0 && s.proc.Pending() == 0
}

// sleep waits for d, or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// poll waits until ok returns true, and reports whether it did before ctx was done.
func poll(ctx context.Context, ok func() bool) bool {
	tick := time.Tick(pollInterval)
	for !ok() {
		select {
		case <-tick:
		case <-ctx.Done():
			return false
		}
	}
	return true
}
