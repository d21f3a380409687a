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

// signals are an eventfd and a timerfd. By edge, each write and each expiry is an event, and nobody needs to read them. Timers
// of the Go runtime may be a millisecond late.
type signals struct{ bell, alarm int }

func (p *Poller) openSignals() (err error) {
	p.bell, p.alarm = -1, -1
	if p.bell, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		return os.NewSyscallError("eventfd", err)
	}
	if p.alarm, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
		return os.NewSyscallError("timerfd_create", err)
	}
	return errors.Join(p.Add(p.bell, kernel.Input), p.Add(p.alarm, kernel.Input))
}

func (s *signals) closeSignals() error {
	return os.NewSyscallError("close", errors.Join(unix.Close(s.bell), unix.Close(s.alarm)))
}

// Wake implements kernel.Poller: it rings the bell.
func (s *signals) Wake() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(s.bell, one[:])
}

func (s *signals) heard() {}

// setAlarm has the alarm go off after d, which is above 0, and not before.
func (s *signals) setAlarm(d time.Duration) {
	_ = unix.TimerfdSettime(s.alarm, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}, nil) // can't fail
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
