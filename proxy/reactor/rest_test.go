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

// quiet makes e's only loop rest: one connection, one exchange at a time.
func quiet(t *testing.T, e *Engine, accept func() loop.Stream) (peer net.Conn) {
	t.Helper()
	peer = dial(t, listen(t, e, ListenOptions{}, accept))
	rests(t, e, peer)
	return peer
}

// rests brings e's only loop to rest, by exchanges with peer.
func rests(t *testing.T, e *Engine, peer net.Conn) {
	t.Helper()
	_ = peer.SetDeadline(time.Now().Add(patience))
	settled(t, func() error {
		if ask(t, peer, "ping"); !e.loops[0].rest.resting.Load() {
			return errors.New("the loop does not rest")
		}
		return nil
	})
}

// TestRestEnds: whatever comes wakes a loop that rests.
func TestRestEnds(t *testing.T) {
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
			settled(t, func() error {
				if e.Stats().Open > 0 {
					return errors.New("the connection is open")
				}
				return nil
			})
		}},
		{"stop", func(t *testing.T, e *Engine, _ net.Conn) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := e.Stop(ctx); err != nil {
				t.Errorf("Stop: %v", err)
			}
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			e := start(t, Options{})
			c.come(t, e, quiet(t, e, flushed(e, func() {})))
		})
	}
}

// TestRestEndsForATimer: one that was armed by the event before the rest.
func TestRestEndsForATimer(t *testing.T) {
	e := start(t, Options{})
	fired := make(chan bool, 1)
	tm := &loop.Timer{Fire: func() { fired <- true }}
	peer := quiet(t, e, flushed(e, func() { e.loops[0].After(20*time.Millisecond, tm) }))
	ask(t, peer, "ping")
	recv(t, fired, "the timer")
}

// TestErrandEndsRest: gnet's word of a function may have been taken from the
// kernel when the loop goes to rest, so that nothing but the errand tells of it.
func TestErrandEndsRest(t *testing.T) {
	e := start(t, Options{})
	l := e.loops[0]
	quiet(t, e, flushed(e, func() {}))
	l.errandBegins()
	defer l.errandEnds()
	settled(t, func() error {
		if l.rest.resting.Load() {
			return errors.New("the loop rests")
		}
		return nil
	})
}

// TestErrandPreventsRest: a posted function is an errand itself.
func TestErrandPreventsRest(t *testing.T) {
	e := start(t, Options{})
	l := e.loops[0]
	on(t, l, func() { l.rest.trust = 1; l.takeRest() })
}

// TestRestNeedsNoFlush: a loop whose events leave nothing for the end of the turn
// rests too.
func TestRestNeedsNoFlush(t *testing.T) {
	quiet(t, start(t, Options{}), echo)
}

// TestRestPays: while an event is there already the loop hardly looks, and while
// none is it rests each time.
func TestRestPays(t *testing.T) {
	fd := eventfd(t, 1)
	r := rest{epoll: epollOf(t, fd, unix.EPOLLIN)}
	rests := func(events int) (n int) {
		for range events {
			if r.pays() {
				n++
			}
		}
		return n
	}
	if n := rests(10 * (restSkip + 1)); n != 0 {
		t.Errorf("%d rests with an event there", n)
	}
	r.skip = 0
	rests(1) // with a look
	if _, err := unix.Read(fd, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if n := rests(restSkip); n != 0 {
		t.Errorf("%d of the %d that go without after a look in vain rest", n, restSkip)
	}
	if n := rests(100); n != 100 {
		t.Errorf("%d rests of 100 with none", n)
	}
	r.trust = 0
	if rests(1); r.vain != 0 {
		t.Errorf("after a look that found none %d go without at the next that finds one", r.vain)
	}
	if _, err := unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	if n := rests(10 * (restSkip + 1)); n != restTrust || r.vain != restSkip {
		t.Errorf("%d rests after an event came, want %d, the last without a look; then %d go without", n, restTrust, r.vain)
	}
}

// TestRestInPairs: events that come two by two do not keep the loop from resting, as
// they would if looks always fell on the first of a pair: neither from the start nor
// when it was busy before.
func TestRestInPairs(t *testing.T) {
	for _, vain := range []int{0, restSkip} {
		fd := eventfd(t, 0)
		r := rest{epoll: epollOf(t, fd, unix.EPOLLIN), vain: vain}
		rests := 0
		for range 100 {
			if _, err := unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
				t.Fatal(err)
			}
			r.pays() // the first, while the second is there
			if _, err := unix.Read(fd, make([]byte, 8)); err != nil {
				t.Fatal(err)
			}
			if r.pays() {
				rests++
			}
		}
		if rests < 20 {
			t.Errorf("%d rests after 100 pairs, with %d that went without before", rests, vain)
		}
	}
}

// TestYieldWithoutRest: a loop that has no time to rest yields all the same, once in a
// time slice.
func TestYieldWithoutRest(t *testing.T) {
	l := start(t, Options{}).loops[0]
	on(t, l, func() {
		defer func(now time.Duration) { l.now, l.rest.yielded = now, now }(l.now)
		l.rest.trust, l.rest.skip, l.rest.yielded = 0, restSkip, l.now
		for range restSkip / 2 {
			l.now += timeSlice
			before := l.rest.yielded
			if l.takeRest(); l.rest.yielded != before {
				t.Errorf("it yielded after %v", l.now-before)
			}
			l.now++
			if l.takeRest(); l.rest.yielded != l.now {
				t.Errorf("it has not yielded for %v", l.now-l.rest.yielded)
			}
		}
	})
}

// TestRestRepeatsTheEdge: what the kernel says once is not for the rest to hear.
func TestRestRepeatsTheEdge(t *testing.T) {
	word := eventfd(t, 1)
	r := rest{word: word, edge: unix.EPOLLIN | unix.EPOLLET}
	r.epoll = epollOf(t, word, r.edge)
	for range 2 {
		if !r.wait(0) {
			t.Fatal("the edge was not seen")
		}
	}
	var ready [1]unix.EpollEvent
	if n, err := unix.EpollWait(r.epoll, ready[:], 0); n != 1 || int(ready[0].Fd) != word {
		t.Errorf("%d events after the rest, %v", n, err)
	}
}

func TestFindEpoll(t *testing.T) {
	e := start(t, Options{Loops: 2})
	a, b := &e.loops[0].rest, &e.loops[1].rest
	if a.epoll == 0 || b.epoll == 0 || a.epoll == b.epoll || a.word == b.word {
		t.Errorf("the loops wait on %v and %v, for words of %v and %v", a.epoll, b.epoll, a.word, b.word)
	}
	var none rest
	if err := none.find(1 << 30); err == nil || none.epoll != 0 {
		t.Errorf("a descriptor that is not open is watched by %v, %v", none.epoll, err)
	}
}

// TestFindEpollIsSure: one of several might be anybody's, and a rest on one without
// an eventfd of gnet's would keep its word from it.
func TestFindEpollIsSure(t *testing.T) {
	fd, word := eventfd(t, 0), eventfd(t, 0)
	var r rest
	plain := epollOf(t, fd, unix.EPOLLIN)
	if err := r.find(fd); err == nil || r.epoll != 0 {
		t.Errorf("found %v, which is not gnet's", r.epoll)
	}
	add(t, plain, word, unix.EPOLLIN|unix.EPOLLET)
	if err := r.find(fd); err != nil || r.epoll != plain || r.word != word {
		t.Errorf("found %v with %v, %v", r.epoll, r.word, err)
	}
	add(t, epollOf(t, fd, unix.EPOLLIN), word, unix.EPOLLIN|unix.EPOLLET)
	if err := r.find(fd); err == nil || r.epoll != 0 {
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

// epollOf is an epoll descriptor that watches fd.
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

// TestNothingIsLostAtRest: in each round data, a timer, functions of several
// goroutines and sometimes a connection come to a loop that rests, and nothing else
// until all of it was seen: what is lost is not found by way of the next event.
func TestNothingIsLostAtRest(t *testing.T) {
	const rounds, posters, dialEvery = 500, 8, 8
	e := start(t, Options{})
	l := e.loops[0]
	other := listen(t, e, ListenOptions{}, echo)
	seen := make(chan struct{}, posters+3)
	tm := &loop.Timer{Fire: func() { seen <- struct{}{} }}
	var due atomic.Int64
	peer := quiet(t, e, flushed(e, func() {
		if d := due.Swap(0); d > 0 {
			l.After(time.Duration(d), tm)
		}
	}))
	rnd := rand.New(rand.NewPCG(1, 2))
	for round := range rounds {
		rests(t, e, peer)
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
				_ = c.SetDeadline(time.Now().Add(patience))
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

// echoed is ask for any goroutine.
func echoed(t *testing.T, c net.Conn) {
	b := []byte("data")
	if _, err := c.Write(b); err != nil {
		t.Error(err)
	} else if _, err := io.ReadFull(c, b); err != nil {
		t.Error(err)
	}
}
