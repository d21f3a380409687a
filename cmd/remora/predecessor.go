package main

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
	"time"

	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/handover"
)

const (
	// handOverTimeout bounds how long a successor may take to make itself ready.
	handOverTimeout = time.Minute

	// doorPause is the time to the next try after the system could not accept.
	doorPause = time.Second
)

// errBusy is why a successor is sent away for now.
var errBusy = errors.New("the sidecar is draining, or reloads its configuration")

// openDoor makes the place to which a successor comes, instead of to the process
// before. Without a door the sidecar serves all the same.
func (s *sidecar) openDoor(path string) {
	if path == "" {
		return
	}
	if os.Getpid() == 1 {
		s.log.Info("no hot restart: with this process its container ends")
		return
	}
	door, err := handover.Open(path)
	if err != nil {
		s.log.Warn("no hot restart", "error", err)
		return
	}
	s.door = door
}

func (s *sidecar) shutDoor() {
	if s.door != nil {
		_ = s.door.Close() // again, after a drain
	}
}

// answerDoor serves those who come, one after another, until one has taken over.
func (s *sidecar) answerDoor() {
	for {
		conn, err := s.door.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.log.Warn("a successor may be missed", "error", err)
			wait(s.ended, doorPause)
			continue
		}
		if err = s.handOver(conn); err == nil {
			return // conn ends with this process, which tells the successor
		}
		_ = conn.Close()
		s.log.Error("not replaced", "by", conn.Peer(), "error", err)
	}
}

// handOver gives the sockets to a successor, and drains when that serves. With an
// error this process goes on as if nothing was.
func (s *sidecar) handOver(to *handover.Conn) error {
	if !s.changing.TryLock() {
		return errors.Join(errBusy, to.Refuse(errBusy))
	}
	err := s.replaceBy(to)
	if err == nil {
		s.closeAdmin() // first: that this process drains would be taken for the successor's answer
	}
	if err == nil && !s.begin(s.retreat) {
		err = errBusy // by a signal, this very moment
	}
	if err != nil {
		s.changing.Unlock()
		return err
	}
	// changing stays locked: no reload from now on.
	s.door.Leave()
	s.log.Info("replaced", "by", to.Peer())
	notify(fmt.Sprintf("MAINPID=%d", to.Peer()))
	close(s.replaced)
	return nil
}

// replaceBy is the conversation with a successor.
func (s *sidecar) replaceBy(to *handover.Conn) error {
	_ = to.SetDeadline(time.Now().Add(handOverTimeout))
	parked, err := s.streams.Parking()
	if err != nil {
		s.log.Warn("answers that are parked can't be fetched after a hot restart", "error", err)
	}
	sockets := s.sockets()
	offer := handover.Offer{Restarts: s.restarts, Sockets: slices.Sorted(maps.Keys(sockets)), Parked: parked, Names: s.resolved()}
	if err := to.Offer(offer, sockets); err != nil {
		return err
	}
	if err := to.Hear(handover.Ready); err != nil {
		return err
	}
	// From here on the successor may serve at any time: only its end is taken for
	// a no, or both would go on.
	_ = to.SetDeadline(time.Time{})
	s.yield()
	if err = to.Say(handover.Released); err == nil {
		err = to.Hear(handover.Serving)
	}
	if err != nil {
		for _, a := range s.announcements {
			a.resume()
		}
	}
	return err
}

// sockets are those that a successor can take over, by their configured address.
func (s *sidecar) sockets() map[string]net.Listener {
	all := make(map[string]net.Listener, len(s.listeners)+1)
	for _, l := range s.listeners {
		all[l.address] = l.socket
	}
	if s.adminSocket != nil {
		all[s.cfg.Admin.Address] = s.adminSocket
	}
	maps.DeleteFunc(all, func(address string, _ net.Listener) bool { return !lasting(address) })
	return all
}

// yield leaves what is announced to a successor, all at once.
func (s *sidecar) yield() {
	var tasks sync.WaitGroup
	for _, a := range s.announcements {
		tasks.Go(a.yield)
	}
	tasks.Wait()
}

func (s *sidecar) closeAdmin() {
	if err := bounded(s.admin.Close); err != nil {
		s.log.Warn("calls of the admin API cut off", "error", err)
	}
}

// retreat is the drain of a process whose successor serves, for at most
// timeouts.drain. The sockets stay open there, so nobody has to hear of it first.
func (s *sidecar) retreat() {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Timeouts.Drain)
	defer cancel()
	for _, l := range s.listeners {
		s.close(l)
	}
	s.proc.Retire()
	s.leave(s.announcements)
	until(ctx, s.fetched)
	s.finish(ctx)
}

// Why a process can't be replaced.
var (
	errNoDoor  = errors.New("this process can't hand over its sockets; see the log of its start")
	errLeaving = errors.New("the sidecar is draining, or was replaced")
)

// followRestarts starts a successor whenever asked to, one at a time, until the
// sidecar ends.
func (s *sidecar) followRestarts(asked <-chan os.Signal) {
	for {
		select {
		case <-asked:
			if err := s.startSuccessor(); err != nil {
				s.log.Error("not replaced", "error", err)
			}
		case <-s.ended.Done():
			return
		}
	}
}

// startSuccessor runs this program as it was called, from where it was called: what
// is there now may be a newer version. It returns when that has ended; one that takes
// over outlives this process.
func (s *sidecar) startSuccessor() error {
	if s.door == nil {
		return errNoDoor
	}
	if s.admin.Phase() > admin.Serving {
		return errLeaving // the new process would find nobody here, or replace the one that did so
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
