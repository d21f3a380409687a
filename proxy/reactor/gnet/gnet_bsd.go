//go:build darwin || freebsd

package gnet

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/panjf2000/gnet/v2/pkg/netpoll"
	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// signals are a pipe and a timer of the Go runtime: gnet passes no events of kqueue's own on.
type signals struct {
	bell   int // the end of the pipe that is read
	alarm  int // no descriptor: the timer calls Wake
	timer  *time.Timer
	mu     sync.Mutex // guards ringer: the timer may call Wake during Close
	ringer int        // the other end; -1 after Close
}

func (p *Poller) openSignals() error {
	ends := [2]int{-1, -1}
	err := os.NewSyscallError("pipe", unix.Pipe(ends[:]))
	for _, fd := range ends {
		unix.CloseOnExec(fd)
		err = errors.Join(err, os.NewSyscallError("fcntl", unix.SetNonblock(fd, true)))
	}
	p.bell, p.ringer, p.alarm, p.timer = ends[0], ends[1], -1, time.AfterFunc(time.Hour, p.Wake)
	return errors.Join(err, p.Add(p.bell, kernel.Input))
}

func (s *signals) closeSignals() error {
	s.timer.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	err := errors.Join(unix.Close(s.bell), unix.Close(s.ringer))
	s.ringer = -1
	return os.NewSyscallError("close", err)
}

// Wake implements kernel.Poller: it rings the bell. A full pipe has rung already.
func (s *signals) Wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = unix.Write(s.ringer, []byte{1})
}

func (s *signals) heard() {
	var rings [64]byte
	_, _ = unix.Read(s.bell, rings[:])
}

// setAlarm has the alarm go off after d, and not before.
func (s *signals) setAlarm(d time.Duration) { s.timer.Reset(d) }

func events(event netpoll.IOEvent, flags netpoll.IOFlags) kernel.Events {
	switch {
	case netpoll.IsWriteEvent(event):
		return kernel.Output
	case flags&unix.EV_EOF != 0:
		return kernel.Input | kernel.All
	}
	return kernel.Input
}

// Change implements kernel.Poller. To add a descriptor again reports it again.
func (p *Poller) Change(fd int, e kernel.Events) error {
	at := &netpoll.PollAttachment{FD: fd}
	if e&kernel.Output != 0 {
		return p.poller.AddReadWrite(at, true)
	}
	if err := p.poller.ModRead(at, true); err != nil && !errors.Is(err, unix.ENOENT) {
		return err // ENOENT: it was not watched for Output
	}
	return p.poller.AddRead(at, true)
}

// Remove implements kernel.Poller. The close ends it.
func (p *Poller) Remove(int) error { return nil }
