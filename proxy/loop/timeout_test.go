package loop

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// clock is a Loop that has timers alone, and counts how often one is armed.
type clock struct {
	Loop
	timers Timers
	now    time.Duration
	armed  int
}

func (c *clock) Now() time.Duration { return c.now }

func (c *clock) After(d time.Duration, t *Timer) {
	c.armed++
	c.timers.Arm(t, c.now+max(d, 0))
}

func (c *clock) Stop(t *Timer) { c.timers.Disarm(t) }

// run lets time pass until a time, and fires what is due.
func (c *clock) run(until time.Duration) {
	for {
		at, ok := c.timers.Next()
		if !ok || at > until {
			c.now = until
			return
		}
		c.now = at
		c.timers.Pop(at, c.timers.LastSeq()).Fire()
	}
}

// newTimeout returns a Timeout with its loop, and the expiries.
func newTimeout() (t *Timeout, c *clock, expired *[]string) {
	t, c, expired = &Timeout{}, &clock{now: 100}, new([]string)
	t.Init(c, func(k TimeoutKind) {
		*expired = append(*expired, fmt.Sprintf("%d at %d", k, c.now))
		for kind := TimeoutOff + 1; kind <= TimeoutEnd; kind++ {
			if t.Running(kind) {
				*expired = append(*expired, "still running")
			}
		}
	})
	return t, c, expired
}

// TestTimeout: a timeout expires once, when the latest start says, whatever was started before.
func TestTimeout(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(t *Timeout, c *clock)
		want []string
	}{
		"once":          {func(t *Timeout, _ *clock) { t.Start(TimeoutHead, 10) }, []string{"2 at 110"}},
		"at once":       {func(t *Timeout, _ *clock) { t.Start(TimeoutHead, 0) }, []string{"2 at 100"}},
		"idle":          {func(t *Timeout, _ *clock) { t.StartIdle(10) }, []string{"1 at 110"}},
		"stopped":       {func(t *Timeout, _ *clock) { t.Start(TimeoutHead, 10); t.Stop() }, nil},
		"closed":        {func(t *Timeout, _ *clock) { t.Start(TimeoutHead, 10); t.Close() }, nil},
		"another kind":  {func(t *Timeout, _ *clock) { t.Start(TimeoutHead, 10); t.Start(TimeoutBody, 10) }, []string{"3 at 110"}},
		"earlier":       {func(t *Timeout, _ *clock) { t.Start(TimeoutHead, 10); t.Start(TimeoutBody, 5) }, []string{"3 at 105"}},
		"later":         {func(t *Timeout, _ *clock) { t.Start(TimeoutHead, 10); t.Start(TimeoutEnd, 50) }, []string{"4 at 150"}},
		"again":         {func(t *Timeout, c *clock) { t.Start(TimeoutHead, 10); c.run(105); t.Start(TimeoutHead, 10) }, []string{"2 at 115"}},
		"after a stop":  {func(t *Timeout, _ *clock) { t.Start(TimeoutHead, 10); t.Stop(); t.Start(TimeoutBody, 20) }, []string{"3 at 120"}},
		"after the end": {func(t *Timeout, c *clock) { t.Start(TimeoutHead, 10); c.run(120); t.Start(TimeoutBody, 10) }, []string{"2 at 110", "3 at 130"}},
		"stopped late":  {func(t *Timeout, c *clock) { t.Start(TimeoutHead, 10); t.Start(TimeoutHead, 30); c.run(115); t.Stop() }, nil},
		"earlier again": {func(t *Timeout, c *clock) {
			t.Start(TimeoutHead, 10)
			t.Start(TimeoutHead, 50)
			c.run(120) // the timer has fired, and waits for the rest
			t.Start(TimeoutBody, 10)
		}, []string{"3 at 130"}},
	} {
		timeout, l, expired := newTimeout()
		c.do(timeout, l)
		if l.run(1000); !slices.Equal(*expired, c.want) {
			t.Errorf("%s: %q, want %q", name, *expired, c.want)
		}
		if l.timers.Len() != 0 {
			t.Errorf("%s: a timer is armed at the end", name)
		}
	}
}

// TestTimeoutRunning: which kind runs, and for how long a session has been idle.
func TestTimeoutRunning(t *testing.T) {
	timeout, l, _ := newTimeout()
	check := func(what string, kind TimeoutKind, idle time.Duration) {
		t.Helper()
		for k := TimeoutOff; k <= TimeoutEnd; k++ {
			if timeout.Running(k) != (k == kind) {
				t.Errorf("%s: kind %d runs: %t", what, k, timeout.Running(k))
			}
		}
		if got := timeout.IdleFor(); got != idle {
			t.Errorf("%s: idle for %d, want %d", what, got, idle)
		}
	}
	check("new", TimeoutOff, 0)
	timeout.StartIdle(50)
	check("idle", TimeoutIdle, 0)
	l.run(130)
	check("idle for a while", TimeoutIdle, 30)
	timeout.Start(TimeoutHead, 50)
	l.run(140)
	check("in a head", TimeoutHead, 0)
	timeout.Stop()
	check("stopped", TimeoutOff, 0)
	timeout.StartIdle(50)
	l.run(200)
	check("expired", TimeoutOff, 0)
	timeout.StartIdle(50)
	if timeout.Close(); l.timers.Len() != 0 {
		t.Error("a timer is armed after Close")
	}
	check("closed", TimeoutOff, 0)
}

// TestTimeoutTimers: messages that follow each other arm no timer each.
func TestTimeoutTimers(t *testing.T) {
	timeout, l, _ := newTimeout()
	for range 100 {
		timeout.Start(TimeoutHead, 1000)
		l.run(l.now + 1)
		timeout.Stop()
		timeout.StartIdle(2000)
		l.run(l.now + 1)
	}
	if l.armed != 1 {
		t.Errorf("a timer was armed %d times", l.armed)
	}
}

// TestDue: a timer that fires much too late is put off once.
func TestDue(t *testing.T) {
	for late, want := range map[time.Duration]bool{-1: false, 0: false, Slack: false, Slack + 1: true, time.Hour: true} {
		due := Due(time.Second)
		if got := due.PutOff(time.Second + late); got != want {
			t.Errorf("late by %s: put off %t", late, got)
		}
		if want && due.PutOff(time.Second+2*late) {
			t.Errorf("late by %s: put off again", late)
		}
		if !want && due != Due(time.Second) {
			t.Errorf("late by %s: due at %d", late, due)
		}
	}
}

// TestIllegalState: the panic names the states.
func TestIllegalState(t *testing.T) {
	defer func() {
		if got, want := fmt.Sprint(recover()), "time.Duration can't go from 1s to 2s"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}()
	IllegalState(time.Second, 2*time.Second)
}
