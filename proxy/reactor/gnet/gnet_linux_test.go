package gnet

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// turns are Turns whose next turn ends with wait.
type turns struct{ wait kernel.Wait }

func (*turns) BeginTurn()                  {}
func (*turns) OnEvents(int, kernel.Events) {}
func (t *turns) EndTurn() kernel.Wait      { return t.wait }

// TestLongWait: a wait that is longer than what the timer is set to goes on when the timer has expired.
func TestLongWait(t *testing.T) {
	p, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	loop := &turns{}
	p.turns = loop
	for _, c := range []struct{ now, limit, timer time.Duration }{
		{0, 90 * time.Minute, time.Hour},
		{time.Hour, 30 * time.Minute, 30 * time.Minute},
	} {
		loop.wait = kernel.Wait{Now: c.now, Limit: c.limit}
		if err := p.endTurn(); err != nil {
			t.Fatal(err)
		}
		var left unix.ItimerSpec
		if err := unix.TimerfdGettime(p.timerFD, &left); err != nil {
			t.Fatal(err)
		}
		if got := time.Duration(left.Value.Nano()); got > c.timer || got < c.timer-time.Minute {
			t.Errorf("after %s with %s to wait, the timer has %s left, want %s", c.now, c.limit, got, c.timer)
		}
	}
}

// TestEndOfTurn: a turn asks once for its end, however many events it has. The next one asks again.
func TestEndOfTurn(t *testing.T) {
	p, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	p.turns = &turns{wait: kernel.Wait{Limit: -1}}
	for turn := range 2 {
		for range 3 {
			if err := p.onEvent(p.wakeFD+100, unix.EPOLLIN, 0); err != nil {
				t.Fatal(err)
			}
		}
		var count [8]byte
		if _, err := unix.Read(p.wakeFD, count[:]); err != nil {
			t.Fatal(err)
		}
		if n := binary.NativeEndian.Uint64(count[:]); n != 1 {
			t.Errorf("turn %d has asked %d times", turn, n)
		}
		if err := p.onEvent(p.wakeFD, unix.EPOLLIN, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTimerStays: a turn that waits no less long than the timer leaves the timer as it is.
func TestTimerStays(t *testing.T) {
	p, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	loop := &turns{}
	p.turns = loop
	for i, limit := range []time.Duration{time.Minute, time.Minute, 30 * time.Minute, -1} {
		loop.wait = kernel.Wait{Limit: limit}
		if err := p.endTurn(); err != nil {
			t.Fatal(err)
		}
		if p.due != time.Minute {
			t.Errorf("after a turn that waits for %s, the timer is due at %s", limit, p.due)
		}
		var left unix.ItimerSpec
		if err := unix.TimerfdGettime(p.timerFD, &left); err != nil {
			t.Fatal(err)
		}
		if got := time.Duration(left.Value.Nano()); i > 0 && got < 30*time.Minute {
			t.Errorf("a turn that waits for %s has set the timer to %s", limit, got)
		}
		p.setTimerFD(time.Hour) // so that another call shows
	}
}

// TestInherited: a process that this one starts gets no descriptor of a Poller.
func TestInherited(t *testing.T) {
	p, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, fd := range []int{p.wakeFD, p.timerFD} {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d has the flags %x, %v", fd, flags, err)
		}
	}
}

// countedTurns count the events of a descriptor in three turns.
type countedTurns struct {
	fd           int
	turns, count int
}

func (c *countedTurns) BeginTurn() { c.turns++ }

func (c *countedTurns) OnEvents(fd int, _ kernel.Events) {
	if fd == c.fd {
		c.count++
	}
}

func (c *countedTurns) EndTurn() kernel.Wait { return kernel.Wait{Stop: c.turns == 3} }

// TestEdges: a descriptor that stays ready is reported once, whichever events it is watched for.
func TestEdges(t *testing.T) {
	for name, watch := range map[string]func(p *Poller, fd int) error{
		"input":  func(p *Poller, fd int) error { return p.Add(fd, kernel.Input) },
		"output": func(p *Poller, fd int) error { return p.Add(fd, kernel.Output) },
		"input, then both": func(p *Poller, fd int) error {
			return errors.Join(p.Add(fd, kernel.Input), p.Change(fd, kernel.Input|kernel.Output))
		},
		"both, then input": func(p *Poller, fd int) error {
			return errors.Join(p.Add(fd, kernel.Output), p.Change(fd, kernel.Input|kernel.Output), p.Change(fd, kernel.Input))
		},
	} {
		p, err := Open()
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Eventfd(1, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC) // ready for input and output
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		counted := &countedTurns{fd: fd}
		if err := watch(p, fd); err != nil {
			t.Fatal(err)
		}
		p.Run(counted)
		if counted.count != 1 {
			t.Errorf("%s: %d events", name, counted.count)
		}
		own := map[int]unix.Stat_t{p.wakeFD: {}, p.timerFD: {}}
		for fd, before := range own {
			if err := unix.Fstat(fd, &before); err != nil {
				t.Fatal(err)
			}
			own[fd] = before
		}
		if err := p.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for fd, before := range own { // the process may have opened another file with the number
			var after unix.Stat_t
			if err := unix.Fstat(fd, &after); err == nil && after.Dev == before.Dev && after.Ino == before.Ino {
				t.Errorf("%s: descriptor %d is open after Close", name, fd)
			}
		}
	}
}
