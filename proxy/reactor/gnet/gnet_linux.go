package gnet

import (
	"encoding/binary"
	"errors"
	"os"
	"time"

	"github.com/panjf2000/gnet/v2/pkg/netpoll"
	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// ownFDs are an eventfd and a timerfd. By edge, each write and each expiry is an event, and nobody needs to read them. Timers
// of the Go runtime may be a millisecond late.
type ownFDs struct{ wakeFD, timerFD int }

func (p *Poller) openOwn() (err error) {
	p.timerFD = -1
	if p.wakeFD, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		return os.NewSyscallError("eventfd", err)
	}
	if p.timerFD, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
		return os.NewSyscallError("timerfd_create", err)
	}
	return errors.Join(p.Add(p.wakeFD, kernel.Input), p.Add(p.timerFD, kernel.Input))
}

func (o *ownFDs) closeOwn() (err error) {
	for _, fd := range []int{o.wakeFD, o.timerFD} {
		if fd >= 0 {
			err = errors.Join(err, os.NewSyscallError("close", unix.Close(fd)))
		}
	}
	return err
}

// Wake implements kernel.Poller.
func (o *ownFDs) Wake() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(o.wakeFD, one[:])
}

func (o *ownFDs) drainWakeFD() {}

// setTimerFD makes timerFD ready after d, which is above 0.
func (o *ownFDs) setTimerFD(d time.Duration) {
	_ = unix.TimerfdSettime(o.timerFD, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}, nil) // can't fail
}

func events(event netpoll.IOEvent, _ netpoll.IOFlags) kernel.Events { return kernel.EpollEvents(event) }

// Change implements kernel.Poller.
func (p *Poller) Change(fd int, e kernel.Events) error {
	at := &netpoll.PollAttachment{FD: fd}
	if e&kernel.Output != 0 {
		return p.poller.ModReadWrite(at, true)
	}
	return p.poller.ModRead(at, true)
}

// Remove implements kernel.Poller.
func (p *Poller) Remove(fd int) error { return p.poller.Delete(fd) }
