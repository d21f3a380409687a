package kernel

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Poller waits until descriptors are ready, by kqueue. It reports a descriptor in each Wait for as
// long as it is ready, more often than on Linux. Only one goroutine may use it, but for Wake.
type Poller struct {
	fd    int
	ready [MaxReady]unix.Kevent_t
}

// wakeIdent is the number of the event of Wake, which no descriptor has.
const wakeIdent = 1 << 31

// NewPoller returns a Poller that watches nothing. Its owner must Close it.
func NewPoller() (*Poller, error) {
	fd, err := unix.Kqueue()
	if err != nil {
		return nil, os.NewSyscallError("kqueue", err)
	}
	unix.CloseOnExec(fd)
	p := &Poller{fd: fd}
	if err := p.control(unix.Kevent_t{Ident: wakeIdent, Filter: unix.EVFILT_USER, Flags: unix.EV_ADD | unix.EV_CLEAR}); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Close closes the Poller, but no descriptor that it watches.
func (p *Poller) Close() error { return os.NewSyscallError("close", unix.Close(p.fd)) }

// Add watches fd for e. A close of fd ends that.
func (p *Poller) Add(fd int, e Events) error { return p.Change(fd, e) }

// AddShared watches the listening socket fd, which other Pollers watch, too. All are told of a
// connection.
func (p *Poller) AddShared(fd int) error { return p.Add(fd, Input) }

// Change watches fd for e from now on.
func (p *Poller) Change(fd int, e Events) error {
	for _, f := range []struct {
		filter int16
		event  Events
	}{{unix.EVFILT_READ, Input}, {unix.EVFILT_WRITE, Output}} {
		flags := uint16(unix.EV_ADD)
		if e&f.event == 0 {
			flags = unix.EV_DELETE
		}
		err := p.control(unix.Kevent_t{Ident: uint64(fd), Filter: f.filter, Flags: flags})
		if err != nil && !(flags == unix.EV_DELETE && errors.Is(err, unix.ENOENT)) {
			return err
		}
	}
	return nil
}

// Remove ends watching fd.
func (p *Poller) Remove(fd int) error { return p.Change(fd, 0) }

func (p *Poller) control(change unix.Kevent_t) error {
	_, err := unix.Kevent(p.fd, []unix.Kevent_t{change}, nil, nil)
	return os.NewSyscallError("kevent", err)
}

// Wait waits until a descriptor is ready or Wake is called, at most for limit; a negative limit is
// none. It returns the number of events, which Ready returns, and may return 0 early.
func (p *Poller) Wait(limit time.Duration) int {
	var until *unix.Timespec
	if limit >= 0 {
		ts := unix.NsecToTimespec(int64(limit))
		until = &ts
	}
	n, err := unix.Kevent(p.fd, nil, p.ready[:], until)
	if err != nil && !errors.Is(err, unix.EINTR) {
		panic("kernel: kevent: " + err.Error())
	}
	return max(n, 0)
}

// Rest is Wait.
func (p *Poller) Rest(limit time.Duration) int { return p.Wait(limit) }

// Ready returns event i of the last Wait. After Wake there may be one of a descriptor that nobody
// has added.
func (p *Poller) Ready(i int) (fd int, e Events) {
	ready := &p.ready[i]
	switch ready.Filter {
	case unix.EVFILT_READ:
		e = Input
		if ready.Flags&unix.EV_EOF != 0 {
			e |= All
		}
	case unix.EVFILT_WRITE:
		e = Output
	}
	return int(ready.Ident), e
}

// Wake ends the Wait in progress, or the next one. Any goroutine may call it before Close.
func (p *Poller) Wake() {
	_ = p.control(unix.Kevent_t{Ident: wakeIdent, Filter: unix.EVFILT_USER, Fflags: unix.NOTE_TRIGGER})
}
