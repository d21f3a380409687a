package reactor

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// makeIdle makes e's only loop wait for events, with one connection.
func makeIdle(t *testing.T, e *Reactor, accept func() loop.Receiver) (peer net.Conn) {
	t.Helper()
	peer = dial(t, listen(t, e, ListenOptions{}, accept))
	awaitIdle(t, e, peer)
	return peer
}

// awaitIdle exchanges data with peer, and then waits until e's only loop waits.
func awaitIdle(t *testing.T, e *Reactor, peer net.Conn) {
	t.Helper()
	_ = peer.SetDeadline(time.Now().Add(waitLimit))
	ask(t, peer, "ping")
	eventually(t, func() error {
		if !e.loops[0].waiting.Load() {
			return errors.New("the loop does not wait")
		}
		return nil
	})
}

// TestWaitEnds: data, connections, functions and Stop end the wait of a loop.
func TestWaitEnds(t *testing.T) {
	cases := []struct {
		name string
		come func(t *testing.T, e *Reactor, peer net.Conn)
	}{
		{"data", func(t *testing.T, _ *Reactor, peer net.Conn) {
			if got := ask(t, peer, "more"); got != "more" {
				t.Errorf("got %q", got)
			}
		}},
		{"post", func(t *testing.T, e *Reactor, _ net.Conn) { on(t, e.loops[0], func() {}) }},
		{"connection", func(t *testing.T, e *Reactor, _ net.Conn) {
			if got := ask(t, dial(t, listen(t, e, ListenOptions{}, echo)), "more"); got != "more" {
				t.Errorf("got %q", got)
			}
		}},
		{"close", func(t *testing.T, e *Reactor, peer net.Conn) {
			_ = peer.Close()
			eventually(t, func() error {
				if e.Stats().Open > 0 {
					return errors.New("the connection is open")
				}
				return nil
			})
		}},
		{"stop", func(t *testing.T, e *Reactor, _ net.Conn) {
			ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
			defer cancel()
			if err := e.Stop(ctx); err != nil {
				t.Errorf("Stop: %v", err)
			}
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			e := start(t, Options{})
			c.come(t, e, makeIdle(t, e, flushed(e)))
		})
	}
}

// TestWaitEndsForTimer: a timer that was armed by the event before ends the wait.
func TestWaitEndsForTimer(t *testing.T) {
	e := start(t, Options{})
	fired := make(chan bool, 1)
	tm := &loop.Timer{Fire: func() { fired <- true }}
	peer := makeIdle(t, e, flushed(e, func() { e.loops[0].After(20*time.Millisecond, tm) }))
	ask(t, peer, "ping")
	recv(t, fired, "the timer")
}

// TestYield: a busy loop yields once in a time slice.
func TestYield(t *testing.T) {
	var q quantum
	for began := time.Duration(0); began < time.Second; began += timeSlice + 1 {
		if q.yield(began + timeSlice) {
			t.Fatalf("yielded after %v", timeSlice)
		}
		if !q.yield(began + timeSlice + 1) {
			t.Fatalf("not yielded for %v", timeSlice+1)
		}
	}
	l := start(t, Options{}).loops[0]
	yielded := make(chan struct{})
	f := &loop.Flush{}
	on(t, l, func() {
		first := l.quantum.count
		f.Do = func() {
			if l.quantum.count == first {
				l.Defer(f)
			} else {
				close(yielded)
			}
		}
		l.Defer(f)
	})
	recv(t, yielded, "the loop to yield")
}

// TestYieldLetsOthersRun: a yield runs the goroutines that are ready on the loop's processor. Each maxLocal-th yield also runs
// the goroutines that wait for any processor.
func TestYieldLetsOthersRun(t *testing.T) {
	const rounds = 64
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var q quantum
	now := time.Duration(0)
	runs := func(n *atomic.Int64) bool { // whether n has changed within a yield
		before := n.Load()
		now += 2 * timeSlice
		q.yield(now)
		return n.Load() != before
	}
	// The runtime may take the processor away at any time, so a few goroutines may run earlier or later.
	var local atomic.Int64
	ran := 0
	for range rounds {
		for range maxLocal - 1 {
			go local.Add(1)
			if runs(&local) {
				ran++
			}
		}
		runs(&local)
	}
	if all := rounds * (maxLocal - 1); ran < all/2 {
		t.Errorf("goroutines that were ready on the processor ran in %d of %d yields", ran, all)
	}
	var global atomic.Int64
	var end atomic.Bool
	done := make(chan struct{})
	go func() { // Gosched puts it where goroutines wait for any processor
		defer close(done)
		for !end.Load() {
			global.Add(1)
			runtime.Gosched()
		}
	}()
	ran = 0
	for range rounds {
		for range maxLocal - 1 {
			runs(&global)
		}
		if runs(&global) {
			ran++
		}
	}
	end.Store(true)
	recv(t, done, "the other goroutine")
	if ran < rounds/2 {
		t.Errorf("a goroutine that waited for any processor ran in %d of %d such yields", ran, rounds)
	}
}

// TestWaitLosesNothing: in each round a waiting loop receives data, a timer, functions
// of several goroutines and sometimes a connection. Nothing else arrives until it has
// handled all of them, so that no later event can hide a lost one.
func TestWaitLosesNothing(t *testing.T) {
	const rounds, posters, dialEvery = 500, 8, 8
	e := start(t, Options{})
	l := e.loops[0]
	other := listen(t, e, ListenOptions{}, echo)
	seen := make(chan struct{}, posters+3)
	tm := &loop.Timer{Fire: func() { seen <- struct{}{} }}
	var due atomic.Int64
	peer := makeIdle(t, e, flushed(e, func() {
		if d := due.Swap(0); d > 0 {
			l.After(time.Duration(d), tm)
		}
	}))
	rnd := rand.New(rand.NewPCG(1, 2))
	for round := range rounds {
		awaitIdle(t, e, peer)
		begin := make(chan struct{})
		come := func(f func()) {
			after := time.Duration(rnd.IntN(60)) * time.Microsecond
			go func() {
				<-begin
				for from := time.Now(); time.Since(from) < after; {
					runtime.Gosched()
				}
				f()
			}()
		}
		coming := posters + 2
		for range posters {
			come(func() { l.Post(func() { seen <- struct{}{} }) })
		}
		due.Store(1 + rnd.Int64N(60_000))
		come(func() { echoed(t, peer); seen <- struct{}{} })
		if round%dialEvery == 0 {
			coming++
			come(func() {
				c, err := net.Dial("tcp", other)
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(waitLimit))
				echoed(t, c)
				seen <- struct{}{}
			})
		}
		close(begin)
		for range coming {
			recv(t, seen, "all that came")
		}
	}
}

// echoed is ask, for any goroutine.
func echoed(t *testing.T, c net.Conn) {
	b := []byte("data")
	if _, err := c.Write(b); err != nil {
		t.Error(err)
	} else if _, err := io.ReadFull(c, b); err != nil {
		t.Error(err)
	}
}
