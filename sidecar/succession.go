package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	"github.com/remora-proxy/remora/proxy/stream"
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

// succession passes the sidecar from one process to the next: this process takes over from a predecessor, and hands over
// to a successor.
type succession struct {
	log              *slog.Logger
	ended            context.Context    // ends when the sidecar stops
	inherited        *inheritance       // its sockets are used until the end of start
	predecessorEnded chan struct{}      // closed at the end of the predecessor; nil without one
	successors       *handover.Listener // accepts successors; nil if this process can't be replaced
	replaced         chan struct{}      // closed when a successor serves

	// What a successor takes over, and what must not change meanwhile.
	changing      *sync.Mutex
	admin         *adminAPI
	listeners     *listeners
	sources       *sources
	registrations *registrations
	streams       *stream.Server
	drain         func() (begun bool) // begins the drain of a process whose successor serves, unless another has begun
}

// listen listens for successors at path, in place of the predecessor. If it fails, the
// sidecar serves without hot restarts.
func (s *succession) listen(path string) {
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

// close accepts no more successors.
func (s *succession) close() {
	if s.successors != nil {
		_ = s.successors.Close() // may be closed already, by a drain
	}
}

// accept accepts successors, one at a time, until one has taken over.
func (s *succession) accept() {
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

// handOverTo gives the sockets to a successor, and drains once the successor serves. After an error this process goes
// on as before. There is one exception: a signal begins a drain while the successor begins to serve. Then the error is
// errBusy, the successor serves, and the drain of the signal goes on.
func (s *succession) handOverTo(to *handover.Conn) error {
	if !s.changing.TryLock() {
		return errors.Join(errBusy, to.Refuse(errBusy))
	}
	s.listeners.removed.takeover.Lock()
	defer s.listeners.removed.takeover.Unlock()
	err := s.passSockets(to)
	if err == nil {
		s.disown()
		s.admin.leave() // first, or requests to the shared admin socket could find this process draining
	}
	if err == nil && !s.drain() {
		err = errBusy // a signal has just started a drain
	}
	if err != nil {
		s.changing.Unlock()
		return err
	}
	// changing stays locked, so that no reload follows.
	s.successors.Yield()
	s.log.Info("replaced", "by", to.Peer())
	notify(fmt.Sprintf("MAINPID=%d", to.Peer()))
	close(s.replaced)
	return nil
}

// passSockets sends the offer and the sockets, and waits until the successor serves.
func (s *succession) passSockets(to *handover.Conn) error {
	_ = to.SetDeadline(time.Now().Add(handOverTimeout))
	parked, err := s.streams.Parking()
	if err != nil {
		s.log.Warn("parked responses can't be fetched after a hot restart", "error", err)
	}
	offer := handover.Offer{Restarts: s.inherited.restarts, Parked: parked, Names: s.sources.resolvedNames()}
	if err := s.offerSockets(to, offer); err != nil {
		return err
	}
	if err := to.Hear(handover.Ready); err != nil {
		return err
	}
	// From here on the successor may serve at any time. There is no timeout: only the
	// end of the successor means failure, or both processes would serve.
	_ = to.SetDeadline(time.Time{})
	s.registrations.yield()
	if err = to.Say(handover.Released); err == nil {
		err = to.Hear(handover.Serving)
	}
	if err != nil {
		s.registrations.resume()
	}
	return err
}

// offerSockets sends the offer, and the sockets that a successor can take over.
func (s *succession) offerSockets(to *handover.Conn, offer handover.Offer) error {
	open, _ := duplicateSockets(slices.DeleteFunc(s.listeners.accepting(), func(l *openListener) bool {
		return !sockets.HasFixedPort(l.address)
	}))
	defer open.Close()
	all := make(map[string]syscall.Conn, len(open)+1)
	for address, ln := range open {
		all[address] = ln.(syscall.Conn)
	}
	s.admin.offer(all)
	offer.Sockets = slices.Sorted(maps.Keys(all))
	return to.Offer(offer, all)
}

// disown leaves the files of Unix sockets to the successor.
func (s *succession) disown() {
	for _, l := range s.listeners.accepting() {
		l.disown()
	}
	s.admin.disown()
}

// awaitPredecessor waits for the end of the predecessor. It has drained since this
// process serves, so it ends in time.
func (s *succession) awaitPredecessor(ctx context.Context) {
	if s.predecessorEnded == nil {
		return
	}
	select {
	case <-s.predecessorEnded:
		return
	default:
	}
	s.log.Info("waiting for the end of the predecessor")
	select {
	case <-s.predecessorEnded:
	case <-ctx.Done():
	}
}

// watchPredecessor waits for the end of the predecessor. Another process may then get
// its address for parked responses, which must no longer be used.
func (s *succession) watchPredecessor(conn *handover.Conn) {
	defer close(s.predecessorEnded)
	conn.Outlive(s.ended)
	s.streams.ForgetPrevious()
}

// Reasons for which a process can't be replaced.
var (
	errNoListener = errors.New("this process can't hand over its sockets; see the log of its start")
	errLeaving    = errors.New("the sidecar is draining, or was replaced")
)

// restart starts a successor, and logs why it has not taken over.
func (s *succession) restart() {
	if err := s.startSuccessor(); err != nil {
		s.log.Error("not replaced", "error", err)
	}
}

// startSuccessor runs the program with this process's arguments, from the same path,
// where a newer version may be now. It returns when the successor has ended. A
// successor that takes over outlives this process.
func (s *succession) startSuccessor() error {
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
