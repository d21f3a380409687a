package gnet

import (
	"encoding/binary"
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
