package sidecar

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/handover"
	"github.com/remora-proxy/remora/proxy/reactor/unixsock"
	"github.com/remora-proxy/remora/sidecar/sockets"
)

const (
	// handOverTimeout bounds how long a successor may take until it is ready.
	handOverTimeout = time.Minute

	// acceptPause is the pause after a failed accept.
	acceptPause = time.Second
)

// errBusy is the reason for which a successor is refused.
var errBusy = errors.New("the sidecar is draining, or reloads its configuration")

// listenForSuccessors listens at path, in place of the predecessor. If it fails, the
// sidecar serves without hot restarts.
func (s *Sidecar) listenForSuccessors(path string) {
	if path == "" {
		return
	}
	if os.Getpid() == 1 {
		s.log.Info("no hot restart: process 1 of a container can't be replaced")
		return
	}
	successors, err := handover.Listen(path)
	if err != nil {
		s.log.Warn("no hot restart", "error", err)
		return
	}
	s.successors = successors
}

func (s *Sidecar) closeSuccessors() {
	if s.successors != nil {
		_ = s.successors.Close() // may be closed already, by a drain
	}
}

// acceptSuccessors accepts successors, one at a time, until one has taken over.
func (s *Sidecar) acceptSuccessors() {
	for {
		conn, err := s.successors.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.log.Warn("successor not accepted", "error", err)
			sleep(s.ended, acceptPause)
			continue
		}
		if err = s.handOverTo(conn); err == nil {
			return // the end of this process closes conn; the successor waits for that
		}
		_ = conn.Close()
		s.log.Error("not replaced", "by", conn.Peer(), "error", err)
	}
}

// handOverTo gives the sockets to a successor, and drains once the successor serves.
// After an error this process goes on as before.
func (s *Sidecar) handOverTo(to *handover.Conn) error {
	if !s.changing.TryLock() {
		return errors.Join(errBusy, to.Refuse(errBusy))
	}
	s.leaving.passing.Lock()
	defer s.leaving.passing.Unlock()
	err := s.passSockets(to)
	if err == nil {
		s.disownSockets()
		s.closeAdmin() // first, or requests to the shared admin socket could find this process draining
	}
	if err == nil && !s.beginDrain(s.drainReplaced) {
		err = errBusy // a signal has just started a drain
	}
	if err != nil {
		s.changing.Unlock()
		return err
	}
	// changing stays locked, so that no reload follows.
	s.successors.Leave()
	s.log.Info("replaced", "by", to.Peer())
	notify(fmt.Sprintf("MAINPID=%d", to.Peer()))
	close(s.replaced)
	return nil
}

// passSockets sends the offer and the sockets, and waits until the successor serves.
func (s *Sidecar) passSockets(to *handover.Conn) error {
	_ = to.SetDeadline(time.Now().Add(handOverTimeout))
	parked, err := s.streams.Parking()
	if err != nil {
		s.log.Warn("parked responses can't be fetched after a hot restart", "error", err)
	}
	offer := handover.Offer{Restarts: s.inherited.restarts, Parked: parked, Names: s.resolvedNames()}
	if err := s.offerSockets(to, offer); err != nil {
		return err
	}
	if err := to.Hear(handover.Ready); err != nil {
		return err
	}
	// From here on the successor may serve at any time. There is no timeout: only the
	// end of the successor means failure, or both processes would serve.
	_ = to.SetDeadline(time.Time{})
	s.yieldRegistrations()
	if err = to.Say(handover.Released); err == nil {
		err = to.Hear(handover.Serving)
	}
	if err != nil {
		for _, a := range s.registrations {
			a.resume()
		}
	}
	return err
}

// offerSockets sends the offer, and the sockets that a successor can take over.
func (s *Sidecar) offerSockets(to *handover.Conn, offer handover.Offer) error {
	open, _ := duplicateSockets(slices.DeleteFunc(s.acceptingListeners(), func(l *openListener) bool {
		return !sockets.HasFixedPort(l.address)
	}))
	defer open.Close()
	all := make(map[string]syscall.Conn, len(open)+1)
	for address, ln := range open {
		all[address] = ln.(syscall.Conn)
	}
	for i, ln := range s.adminSockets {
		address := s.cfg.Admin.Address
		if i > 0 {
			address = ln.Addr().String()
		}
		if sockets.HasFixedPort(address) {
			all[address] = ln.(syscall.Conn)
		}
	}
	offer.Sockets = slices.Sorted(maps.Keys(all))
	return to.Offer(offer, all)
}

// acceptingListeners returns the listeners that accept. Listeners that reloads have removed come first.
func (s *Sidecar) acceptingListeners() []*openListener {
	return slices.AppendSeq(s.leaving.list(), maps.Values(s.listeners))
}

// disownSockets leaves the files of Unix sockets to the successor.
func (s *Sidecar) disownSockets() {
	for _, l := range s.acceptingListeners() {
		l.disown()
	}
	for _, ln := range s.adminSockets {
		if ln, ok := ln.(*unixsock.Listener); ok {
			ln.Disown()
		}
	}
}

// yieldRegistrations yields all registrations to a successor, concurrently.
func (s *Sidecar) yieldRegistrations() {
	var tasks sync.WaitGroup
	for _, a := range s.registrations {
		tasks.Go(a.yield)
	}
	tasks.Wait()
}

func (s *Sidecar) closeAdmin() {
	if err := bounded(s.admin.Close); err != nil {
		s.log.Warn("requests to the admin API cut off", "error", err)
	}
}

// drainReplaced is the drain of a process whose successor serves. It takes at most
// timeouts.drain. The successor has the sockets, so consumers need no notice first.
func (s *Sidecar) drainReplaced() {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Timeouts.Drain)
	defer cancel()
	for _, l := range s.listeners {
		s.closeListener(l)
	}
	s.proc.Retire()
	s.removeRegistrations(s.registrations)
	poll(ctx, s.parkedFetched)
	s.awaitIdle(ctx)
}

// Reasons for which a process can't be replaced.
var (
	errNoListener = errors.New("this process can't hand over its sockets; see the log of its start")
	errLeaving    = errors.New("the sidecar is draining, or was replaced")
)

// restart starts a successor, and logs why it has not taken over.
func (s *Sidecar) restart() {
	if err := s.startSuccessor(); err != nil {
		s.log.Error("not replaced", "error", err)
	}
}

// startSuccessor runs the program with this process's arguments, from the same path,
// where a newer version may be now. It returns when the successor has ended. A
// successor that takes over outlives this process.
func (s *Sidecar) startSuccessor() error {
	if s.successors == nil {
		return errNoListener
	}
	if s.admin.Phase() > admin.Serving {
		return errLeaving // the new process would find no predecessor, or replace this one's successor
	}
	program, err := exec.LookPath(os.Args[0])
	if err != nil {
		return err
	}
	cmd := exec.Command(program, os.Args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	s.log.Info("successor started", "pid", cmd.Process.Pid, "program", program)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("the successor has ended: %w", err)
	}
	return nil
}
