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

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/proxy/loop"
)

// makeIdle makes e's only loop wait for events by itself, with one connection and one
// exchange at a time.
func makeIdle(t *testing.T, e *Engine, accept func() loop.Stream) (peer net.Conn) {
	t.Helper()
	peer = dial(t, listen(t, e, ListenOptions{}, accept))
	awaitIdle(t, e, peer)
	return peer
}

// awaitIdle exchanges data with peer until e's only loop waits by itself.
func awaitIdle(t *testing.T, e *Engine, peer net.Conn) {
	t.Helper()
	_ = peer.SetDeadline(time.Now().Add(waitLimit))
	eventually(t, func() error {
		if ask(t, peer, "ping"); !e.loops[0].idle.waiting.Load() {
			return errors.New("the loop does not wait by itself")
		}
		return nil
	})
}

// TestIdleWaitEnds: data, connections, functions and Stop end the wait of a loop.
func TestIdleWaitEnds(t *testing.T) {
	cases := []struct {
		name string
		come func(t *testing.T, e *Engine, peer net.Conn)
	}{
		{"data", func(t *testing.T, _ *Engine, peer net.Conn) {
			if got := ask(t, peer, "more"); got != "more" {
				t.Errorf("got %q", got)
			}
		}},
		{"post", func(t *testing.T, e *Engine, _ net.Conn) { on(t, e.loops[0], func() {}) }},
		{"connection", func(t *testing.T, e *Engine, _ net.Conn) {
			if got := ask(t, dial(t, listen(t, e, ListenOptions{}, echo)), "more"); got != "more" {
				t.Errorf("got %q", got)
			}
		}},
		{"close", func(t *testing.T, e *Engine, peer net.Conn) {
			_ = peer.Close()
			eventually(t, func() error {
				if e.Stats().Open > 0 {
					return errors.New("the connection is open")
				}
				return nil
			})
		}},
		{"stop", func(t *testing.T, e *Engine, _ net.Conn) {
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
			c.come(t, e, makeIdle(t, e, flushed(e, func() {})))
		})
	}
}

// TestIdleWaitEndsForTimer: a timer that was armed by the event before ends the wait.
func TestIdleWaitEndsForTimer(t *testing.T) {
	e := start(t, Options{})
	fired := make(chan bool, 1)
	tm := &loop.Timer{Fire: func() { fired <- true }}
	peer := makeIdle(t, e, flushed(e, func() { e.loops[0].After(20*time.Millisecond, tm) }))
	ask(t, peer, "ping")
	recv(t, fired, "the timer")
}

// TestTaskEndsIdleWait: gnet's edge for a function may be consumed before the loop waits.
// Then only the task ends the wait.
func TestTaskEndsIdleWait(t *testing.T) {
	e := start(t, Options{})
	l := e.loops[0]
	makeIdle(t, e, flushed(e, func() {}))
	l.taskBegins()
	defer l.taskEnds()
	eventually(t, func() error {
		if l.idle.waiting.Load() {
			return errors.New("the loop waits")
		}
		return nil
	})
}

// TestTaskPreventsIdleWait: a loop with a posted function does not wait.
func TestTaskPreventsIdleWait(t *testing.T) {
	e := start(t, Options{})
	l := e.loops[0]
	on(t, l, func() { l.idle.unchecked = 1; l.waitIdle() })
}

// TestIdleWaitNeedsNoFlush: a loop whose events leave no work for the end of the turn
// waits too.
func TestIdleWaitNeedsNoFlush(t *testing.T) {
	makeIdle(t, start(t, Options{}), echo)
}

// TestIdleWaitWorthwhile: while an event is ready each time the loop seldom checks, and
// while none is ready it always waits.
func TestIdleWaitWorthwhile(t *testing.T) {
	fd := eventfd(t, 1)
	r := idleWait{epoll: epollOf(t, fd, unix.EPOLLIN)}
	waits := func(events int) (n int) {
		for range events {
			if r.worthwhile() {
				n++
			}
		}
		return n
	}
	if n := waits(10 * (maxSkip + 1)); n != 0 {
		t.Errorf("%d events wait with another event ready", n)
	}
	r.skip = 0
	waits(1) // with a look
	if _, err := unix.Read(fd, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if n := waits(maxSkip); n != 0 {
		t.Errorf("%d of the %d events after a check that found one wait", n, maxSkip)
	}
	if n := waits(100); n != 100 {
		t.Errorf("%d of 100 events wait with none ready", n)
	}
	r.unchecked = 0
	if waits(1); r.lastSkip != 0 {
		t.Errorf("after a check that found none, the next that finds one skips %d events", r.lastSkip)
	}
	if _, err := unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	if n := waits(10 * (maxSkip + 1)); n != uncheckedWaits || r.lastSkip != maxSkip {
		t.Errorf("%d events wait after one became ready, want %d, all without a check; then %d are skipped", n, uncheckedWaits, r.lastSkip)
	}
}

// TestIdleWaitInPairs: a loop whose events come in pairs still waits, from the start and
// after it was busy. It would not if all checks fell on the first of a pair.
func TestIdleWaitInPairs(t *testing.T) {
	for _, vain := range []int{0, maxSkip} {
		fd := eventfd(t, 0)
		r := idleWait{epoll: epollOf(t, fd, unix.EPOLLIN), lastSkip: vain}
		waits := 0
		for range 100 {
			if _, err := unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
				t.Fatal(err)
			}
			r.worthwhile() // the first, while the second is there
			if _, err := unix.Read(fd, make([]byte, 8)); err != nil {
				t.Fatal(err)
			}
			if r.worthwhile() {
				waits++
			}
		}
		if waits < 20 {
			t.Errorf("%d events wait after 100 pairs, with %d skipped before", waits, vain)
		}
	}
}

// TestYieldWithoutIdleWait: a loop that never waits yields once in a time slice.
func TestYieldWithoutIdleWait(t *testing.T) {
	l := start(t, Options{}).loops[0]
	on(t, l, func() {
		defer func(now time.Duration) { l.now, l.idle.yielded = now, now }(l.now)
		l.idle.unchecked, l.idle.skip, l.idle.yielded = 0, maxSkip, l.now
		for range maxSkip / 2 {
			l.now += timeSlice
			before := l.idle.yielded
			if l.waitIdle(); l.idle.yielded != before {
				t.Errorf("the loop yielded after %v", l.now-before)
			}
			l.now++
			if l.waitIdle(); l.idle.yielded != l.now {
				t.Errorf("the loop has not yielded for %v", l.now-l.idle.yielded)
			}
		}
	})
}

// TestIdleWaitRepeatsTheEdge: an edge of the eventfd that ends the wait is reported again.
func TestIdleWaitRepeatsTheEdge(t *testing.T) {
	efd := eventfd(t, 1)
	r := idleWait{eventfd: efd, edge: unix.EPOLLIN | unix.EPOLLET}
	r.epoll = epollOf(t, efd, r.edge)
	for range 2 {
		if !r.wait(0) {
			t.Fatal("the edge was not reported")
		}
	}
	var ready [1]unix.EpollEvent
	if n, err := unix.EpollWait(r.epoll, ready[:], 0); n != 1 || int(ready[0].Fd) != efd {
		t.Errorf("%d events after the wait, %v", n, err)
	}
}

func TestFindEpoll(t *testing.T) {
	e := start(t, Options{Loops: 2})
	a, b := &e.loops[0].idle, &e.loops[1].idle
	if a.epoll == 0 || b.epoll == 0 || a.epoll == b.epoll || a.eventfd == b.eventfd {
		t.Errorf("the loops wait on %v and %v, with eventfds %v and %v", a.epoll, b.epoll, a.eventfd, b.eventfd)
	}
	var none idleWait
	if err := none.findDescriptors(1 << 30); err == nil || none.epoll != 0 {
		t.Errorf("a descriptor that is not open is watched by %v, %v", none.epoll, err)
	}
}

// TestFindEpollAmbiguous: no epoll descriptor is used if several qualify, or if it has no
// eventfd.
func TestFindEpollAmbiguous(t *testing.T) {
	fd, efd := eventfd(t, 0), eventfd(t, 0)
	var r idleWait
	plain := epollOf(t, fd, unix.EPOLLIN)
	if err := r.findDescriptors(fd); err == nil || r.epoll != 0 {
		t.Errorf("found %v, which is not gnet's", r.epoll)
	}
	add(t, plain, efd, unix.EPOLLIN|unix.EPOLLET)
	if err := r.findDescriptors(fd); err != nil || r.epoll != plain || r.eventfd != efd {
		t.Errorf("found %v with %v, %v", r.epoll, r.eventfd, err)
	}
	add(t, epollOf(t, fd, unix.EPOLLIN), efd, unix.EPOLLIN|unix.EPOLLET)
	if err := r.findDescriptors(fd); err == nil || r.epoll != 0 {
		t.Errorf("found %v, one of two", r.epoll)
	}
}

func eventfd(t *testing.T, count uint) int {
	t.Helper()
	fd, err := unix.Eventfd(count, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// epollOf returns an epoll descriptor that watches fd.
func epollOf(t *testing.T, fd int, events uint32) int {
	t.Helper()
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(epoll) })
	add(t, epoll, fd, events)
	return epoll
}

func add(t *testing.T, epoll, fd int, events uint32) {
	t.Helper()
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}); err != nil {
		t.Fatal(err)
	}
}

// TestIdleWaitLosesNothing: in each round a waiting loop receives data, a timer, functions
// of several goroutines and sometimes a connection. Nothing else arrives until it has
// handled all of them, so that no later event can hide a lost one.
func TestIdleWaitLosesNothing(t *testing.T) {
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
