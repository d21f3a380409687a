//go:build darwin || freebsd

package gnet

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/panjf2000/gnet/v2/pkg/netpoll"
	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// ownFDs are a pipe, and a timer of the Go runtime that calls Wake: gnet does not pass timers of kqueue on.
type ownFDs struct {
	wakeFD  int // the end of the pipe that is read
	timerFD int // none
	timer   *time.Timer
	mu      sync.Mutex // guards writeFD: the timer may call Wake during Close
	writeFD int        // the other end of the pipe; -1 after Close
}

func (p *Poller) openOwn() error {
	ends := [2]int{-1, -1}
	syscall.ForkLock.RLock() // until it is closed at an exec
	err := os.NewSyscallError("pipe", unix.Pipe(ends[:]))
	for _, fd := range ends {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	for _, fd := range ends {
		err = errors.Join(err, os.NewSyscallError("fcntl", unix.SetNonblock(fd, true)))
	}
	p.wakeFD, p.writeFD, p.timerFD, p.timer = ends[0], ends[1], -1, time.AfterFunc(time.Hour, p.Wake)
	return errors.Join(err, p.Add(p.wakeFD, kernel.Input))
}

func (o *ownFDs) closeOwn() error {
	o.timer.Stop()
	o.mu.Lock()
	defer o.mu.Unlock()
	err := errors.Join(unix.Close(o.wakeFD), unix.Close(o.writeFD))
	o.writeFD = -1
	return os.NewSyscallError("close", err)
}

// Wake implements kernel.Poller. A full pipe is ready already.
func (o *ownFDs) Wake() {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, _ = unix.Write(o.writeFD, []byte{1})
}

func (o *ownFDs) drainWakeFD() {
	var all [64]byte
	_, _ = unix.Read(o.wakeFD, all[:])
}

// setTimerFD calls Wake after d.
func (o *ownFDs) setTimerFD(d time.Duration) { o.timer.Reset(d) }

// events returns All with each Input: at urgent data a read stops, and kqueue does not tell of such data.
func events(event netpoll.IOEvent, _ netpoll.IOFlags) kernel.Events {
	if netpoll.IsWriteEvent(event) {
		return kernel.Output
	}
	return kernel.Input | kernel.All
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
