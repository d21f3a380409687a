package reactor

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// peek runs f by l.Peek once l waits.
func peek(t *testing.T, l *eventLoop, f func()) {
	t.Helper()
	eventually(t, func() error {
		if !l.Peek(f) {
			return errors.New("the loop does not wait")
		}
		return nil
	})
}

// TestPeek: Peek reads a loop that waits, at the time of now, without a turn. The next turn waits for it.
func TestPeek(t *testing.T) {
	e := start(t, Options{})
	l := e.loops[0]
	makeIdle(t, e, flushed(e))
	var turns uint64
	var at time.Duration
	peekTwice := func() (err error) {
		peek(t, l, func() { turns, at = l.stats.Turns.Count(), l.Now() })
		peek(t, l, func() {
			if n := l.stats.Turns.Count(); n != turns || l.Now() <= at {
				err = fmt.Errorf("%d turns at %v, before %d at %v", n, l.Now(), turns, at)
			}
		})
		return err
	}
	eventually(t, peekTwice) // a signal begins a turn, too
	ran := make(chan struct{})
	peek(t, l, func() {
		l.Post(func() { close(ran) })
		for from := time.Now(); time.Since(from) < time.Millisecond; {
			select {
			case <-ran:
				t.Error("a turn has begun")
				return
			default:
			}
		}
	})
	recv(t, ran, "the turn after Peek")
}

// TestPeekInTurn: Peek does not read a loop that is in a turn, or that has ended.
func TestPeekInTurn(t *testing.T) {
	e := start(t, Options{})
	l := e.loops[0]
	never := func() { t.Error("Peek has run its function") }
	begun, end := make(chan struct{}), make(chan struct{})
	l.Post(func() { close(begun); <-end })
	recv(t, begun, "the turn")
	if l.Peek(never) {
		t.Error("Peek in a turn")
	}
	close(end)
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	if err := e.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if l.Peek(never) {
		t.Error("Peek after the end")
	}
}

// TestPeekPanic: a function that panics has not run, and the loop goes on.
func TestPeekPanic(t *testing.T) {
	e := start(t, Options{})
	l := e.loops[0]
	before := e.Stats().Panics
	eventually(t, func() error {
		if l.Peek(func() { panic("in Peek") }) {
			t.Fatal("Peek says that it has run")
		}
		if e.Stats().Panics == before {
			return errors.New("the loop does not wait")
		}
		return nil
	})
	on(t, l, func() {})
}

// TestRest: a long wait is a rest, and a short one after it does not change that.
func TestRest(t *testing.T) {
	l := start(t, Options{}).loops[0]
	rested := make(chan bool)
	eventually(t, func() error { // the turn that sets the timer may take as long as the wait
		on(t, l, func() { l.After(2*restAfter, &loop.Timer{Fire: func() { rested <- l.turn.rested == l.turn.began }}) })
		if !recv(t, rested, "the timer") {
			return errors.New("a long wait is no rest")
		}
		return nil
	})
	at := turn{ended: time.Hour, rested: time.Hour}
	if at.begin(time.Hour + restAfter - 1); at.rested != time.Hour {
		t.Error("a short wait is a rest")
	}
	if at.begin(time.Hour + restAfter); at.rested != time.Hour+restAfter {
		t.Error("a wait of restAfter is no rest")
	}
	at.rested = time.Hour
	if at.ended = time.Hour + restAgain - 1; !at.restsAgain() {
		t.Error("no other rest is expected after a rest")
	}
	if at.ended = time.Hour + restAgain; at.restsAgain() {
		t.Error("another rest is expected long after a rest")
	}
}

// TestOnWork: the function of OnWork is called once, after an event, and not for a timer.
func TestOnWork(t *testing.T) {
	e := start(t, Options{})
	l := e.loops[0]
	peer := makeIdle(t, e, flushed(e))
	worked, fired := make(chan bool, 2), make(chan struct{})
	on(t, l, func() { l.After(2*restAfter, &loop.Timer{Fire: func() { close(fired) }}) })
	peek(t, l, func() { e.OnWork(func() { worked <- true }) })
	recv(t, fired, "the timer")
	peek(t, l, func() {
		if len(worked) > 0 {
			t.Error("called for a timer")
		}
	})
	ask(t, peer, "ping")
	recv(t, worked, "OnWork")
	ask(t, peer, "ping")
	on(t, l, func() {})
	if len(worked) > 0 {
		t.Error("called twice")
	}
}
