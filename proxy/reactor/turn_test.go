package reactor

import (
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// TestSocketsNotStarved: work that always schedules more work must not starve sockets.
func TestSocketsNotStarved(t *testing.T) {
	cases := []struct {
		name  string
		begin func(l *eventLoop, stop *bool)
	}{
		{"post", func(l *eventLoop, stop *bool) {
			var again func()
			again = func() {
				if !*stop {
					l.Post(again)
				}
			}
			again()
		}},
		{"flush", func(l *eventLoop, stop *bool) {
			f := &loop.Flush{}
			f.Do = func() {
				if !*stop {
					l.Defer(f)
				}
			}
			l.Defer(f)
		}},
		{"flush and post", func(l *eventLoop, stop *bool) {
			f := &loop.Flush{}
			f.Do = func() {
				if !*stop {
					l.Post(func() { l.Defer(f) })
				}
			}
			l.Defer(f)
		}},
		{"timer for now", func(l *eventLoop, stop *bool) {
			tm := &loop.Timer{}
			tm.Fire = func() {
				if !*stop {
					l.After(0, tm)
				}
			}
			l.After(0, tm)
		}},
		{"refused dial", func(l *eventLoop, stop *bool) {
			s := &stream{}
			s.close = func(error) {
				if !*stop {
					l.Dial("127.0.0.1:1", waitLimit, s)
				}
			}
			s.close(nil)
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			e := start(t, Options{})
			addr := listen(t, e, ListenOptions{}, echo)
			stop := false
			on(t, e.loops[0], func() { c.begin(e.loops[0], &stop) })
			peer := dial(t, addr)
			for i := range 100 {
				want := "ping " + strconv.Itoa(i)
				if got := ask(t, peer, want); got != want {
					t.Fatalf("got %q", got)
				}
			}
			on(t, e.loops[0], func() { stop = true })
		})
	}
}

// TestPostOrder: posted functions run in order.
func TestPostOrder(t *testing.T) {
	e := start(t, Options{})
	l := e.loops[0]
	const n, halfway, wave = 20_000, 1100, 5000
	var got []int
	hold, midway, more := make(chan struct{}), make(chan struct{}), make(chan struct{})
	l.Post(func() { <-hold })
	for i := range n {
		if i == wave {
			close(hold)
			recv(t, midway, "some functions to run")
		}
		l.Post(func() {
			if got = append(got, i); i == halfway {
				close(midway)
				<-more
			}
		})
	}
	close(more)
	on(t, l, func() {
		if len(got) != n {
			t.Fatalf("%d of %d ran", len(got), n)
		}
		for i, v := range got {
			if i != v {
				t.Fatalf("function %d ran as number %d", v, i)
			}
		}
	})
}

// TestTurnOrder: callbacks run first, then flushes, once each, then OnClose, then
// posted functions. None runs within another.
func TestTurnOrder(t *testing.T) {
	e := start(t, Options{})
	l := e.loops[0]
	addr := listen(t, e, ListenOptions{}, echo)
	var got []string
	var conn loop.Conn
	done := make(chan struct{})
	l.Post(func() {
		l.Dial(addr, waitLimit, &stream{
			open:  func(c loop.Conn) { conn = c; close(done) },
			close: func(error) { got = append(got, "close") },
		})
	})
	recv(t, done, "the dial")
	f := &loop.Flush{Do: func() { got = append(got, "flush") }}
	on(t, l, func() {
		l.Post(func() { got = append(got, "post") })
		conn.Close()
		l.Defer(f)
		l.Defer(f)
		got = append(got, "callback")
	})
	on(t, l, func() {})
	on(t, l, func() {
		want := []string{"callback", "flush", "close", "post"}
		if len(got) != len(want) {
			t.Fatalf("got %q, want %q", got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("got %q, want %q", got, want)
			}
		}
	})
}

// TestSharedTurns: the events of connections that are ready at once share a flush, up to
// kernel.MaxReady of them.
func TestSharedTurns(t *testing.T) {
	for _, c := range []struct{ conns, most int }{
		{16, 2}, // the events may come in two batches
		{3*kernel.MaxReady + 10, 5},
	} {
		t.Run(strconv.Itoa(c.conns), func(t *testing.T) {
			most, flushes := flushesAtOnce(t, c.conns)
			if flushes < 1 || flushes > c.most || most > kernel.MaxReady {
				t.Errorf("%d flushes for %d events, %d of them at once", flushes, c.conns, most)
			}
		})
	}
}

// flushesAtOnce returns the flushes of a round in which conns connections are ready at
// once, and the most events that shared one.
func flushesAtOnce(t *testing.T, conns int) (most, flushes int) {
	e := start(t, Options{})
	l := e.loops[0]
	events, shared := 0, 0
	f := &loop.Flush{Do: func() { flushes, most, shared = flushes+1, max(most, shared), 0 }}
	got := make(chan struct{}, conns)
	opened := make(chan *conn, conns)
	addr := listen(t, e, ListenOptions{}, func() loop.Receiver {
		return &stream{
			open: func(c loop.Conn) { opened <- c.(*conn) },
			data: func([]byte) { events++; shared++; l.Defer(f); got <- struct{}{} },
		}
	})
	var peers []net.Conn
	var ends []*conn
	for range conns {
		peers = append(peers, dial(t, addr))
		ends = append(ends, recv(t, opened, "a connection"))
	}
	for range 3 {
		hold := make(chan struct{})
		held := make(chan struct{})
		l.Post(func() { close(held); <-hold })
		recv(t, held, "the loop to pause")
		events, flushes, most = 0, 0, 0
		for _, p := range peers {
			if _, err := p.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range ends {
			awaitInput(t, c)
		}
		close(hold)
		for range peers {
			recv(t, got, "data")
		}
		on(t, l, func() {})
	}
	on(t, l, func() {
		if events != conns {
			t.Errorf("%d events for %d connections", events, conns)
		}
	})
	return most, flushes
}

// awaitInput waits until the kernel has input for c. The loop must not run meanwhile.
func awaitInput(t *testing.T, c *conn) {
	t.Helper()
	eventually(t, func() error {
		n, err := kernel.Unread(c.fd)
		if err == nil && n == 0 {
			err = errors.New("no input")
		}
		return err
	})
}

// TestTimerMaxDelay: the longest delay does not overflow.
func TestTimerMaxDelay(t *testing.T) {
	e := start(t, Options{})
	l := e.loops[0]
	tm := &loop.Timer{Fire: func() { t.Error("fired") }}
	on(t, l, func() { l.After(math.MaxInt64, tm) })
	fired := make(chan struct{})
	on(t, l, func() { l.After(0, &loop.Timer{Fire: func() { close(fired) }}) })
	recv(t, fired, "another timer")
	on(t, l, func() {
		if !tm.Armed() {
			t.Error("the timer is missing")
		}
	})
}

// wakes is a Poller that counts calls of Wake.
type wakes struct {
	kernel.Poller
	count int
}

func (w *wakes) Wake() { w.count++ }

// byHand returns a loop that the test runs turn by turn. No goroutine of another test may post to it.
func byHand(t *testing.T) (*eventLoop, *wakes) {
	t.Helper()
	w := &wakes{}
	l := &eventLoop{reactor: start(t, Options{}), poller: w}
	l.moving.of = l
	return l, w
}

// TestWaitAfterTurn: how long a loop waits after a turn follows from what is left to do.
func TestWaitAfterTurn(t *testing.T) {
	for _, c := range []struct {
		name string
		turn func(l *eventLoop)
		want func(l *eventLoop, due time.Duration) time.Duration
	}{
		{"nothing", func(*eventLoop) {}, func(*eventLoop, time.Duration) time.Duration { return -1 }},
		{"a timer", func(l *eventLoop) { l.After(time.Hour, &loop.Timer{}) }, func(l *eventLoop, due time.Duration) time.Duration {
			return due + time.Hour - l.turn.ended
		}},
		{"a timer for the next turn", func(l *eventLoop) {
			l.Post(func() { l.After(0, &loop.Timer{}) })
		}, func(*eventLoop, time.Duration) time.Duration { return 0 }},
		{"a flush of a flush", func(l *eventLoop) {
			l.Defer(&loop.Flush{Do: func() { l.Defer(&loop.Flush{}) }})
		}, func(*eventLoop, time.Duration) time.Duration { return 0 }},
		{"a closed connection of a flush", func(l *eventLoop) {
			l.closed = append(l.closed, &conn{descriptor: descriptor{loop: l}, receiver: &stream{close: func(error) { l.closed = append(l.closed, &conn{}) }}})
		}, func(*eventLoop, time.Duration) time.Duration { return 0 }},
		{"a function of a flush", func(l *eventLoop) {
			l.Defer(&loop.Flush{Do: func() { l.Post(func() {}) }})
		}, func(*eventLoop, time.Duration) time.Duration { return 0 }},
	} {
		l, w := byHand(t)
		l.quantum.began = time.Hour // no yield
		l.BeginTurn()
		if l.now != l.turn.began || l.now == 0 || l.turn.events != 0 {
			t.Errorf("%s: the turn has begun at %d, and it is %d", c.name, l.turn.began, l.now)
		}
		if l.Peek(func() {}) {
			t.Errorf("%s: Peek in a turn", c.name)
		}
		due := l.now
		c.turn(l)
		got := l.EndTurn()
		want := c.want(l, due)
		if got.Limit != want || got.Now != l.turn.ended || got.Stop {
			t.Errorf("%s: %+v, want a limit of %d at %d", c.name, got, want, l.turn.ended)
		}
		// A loop with posted functions has begun to wait before it found them.
		if waits := want != 0 || l.posts.some.Load(); l.waiting.Load() != waits {
			t.Errorf("%s: waits: %t, want %t", c.name, l.waiting.Load(), waits)
		}
		if c.name == "nothing" && l.now != l.turn.began {
			t.Errorf("%s: the time has changed from %d to %d", c.name, l.turn.began, l.now)
		}
		if took := l.stats.Turns.Sum; l.turn.ended != l.turn.began+took || l.stats.Turns.Count() != 1 || w.count != 0 {
			t.Errorf("%s: the turn from %d to %d took %d; woken %d times", c.name, l.turn.began, l.turn.ended, took, w.count)
		}
		if !l.Peek(func() {}) {
			t.Errorf("%s: no Peek after the turn", c.name)
		}
	}
}

// TestRestAfterTurn: after a rest the loop expects another one, and after a busy time none.
func TestRestAfterTurn(t *testing.T) {
	l, _ := byHand(t)
	l.turn.ended = -restAfter // a wait that was long
	if l.BeginTurn(); l.turn.rested != l.turn.began {
		t.Errorf("a rest that ended at %d, want %d", l.turn.rested, l.turn.began)
	}
	l.turn.rested = time.Hour // however long the turn takes
	if w := l.EndTurn(); !w.Rest {
		t.Error("no rest after a rest")
	}
	l.turn.ended, l.turn.rested = time.Hour, -restAgain // no wait, long after a rest
	l.BeginTurn()
	if w := l.EndTurn(); w.Rest {
		t.Error("a rest after no rest")
	}
}

// TestYieldEndsTurn: what others do while a loop yields is no part of the turn, nor of the wait after the turn.
func TestYieldEndsTurn(t *testing.T) {
	l, _ := byHand(t)
	turns := 0
	eventually(t, func() error { // where the clock is coarse, a yield may take no time
		before := l.stats.Turns.Sum
		l.BeginTurn()
		l.quantum.began = -2 * timeSlice
		w := l.EndTurn()
		turns++
		ended := l.turn.began + l.stats.Turns.Sum - before
		if l.quantum.count != turns || w.Now != l.turn.ended {
			t.Errorf("%d yields in %d turns; the wait begins at %d, want %d", l.quantum.count, turns, w.Now, l.turn.ended)
		}
		if l.turn.ended <= ended {
			return fmt.Errorf("the turn ended at %d, and after the yield it is %d", ended, l.turn.ended)
		}
		return nil
	})
}

// later waits until the clock of l shows another time.
func later(l *eventLoop) {
	for now := l.clock(); l.clock() == now; {
	}
}

// TestTimeOfTurn: posted functions, and then flushes, have the time at which the first of them begins.
func TestTimeOfTurn(t *testing.T) {
	l, _ := byHand(t)
	var at []time.Duration
	note := func() { at = append(at, l.Now()); later(l) }
	l.Post(note)
	l.Post(note)
	l.BeginTurn()
	later(l)
	l.Defer(&loop.Flush{Do: note})
	l.Defer(&loop.Flush{Do: note})
	l.EndTurn()
	if len(at) != 4 || at[0] <= l.turn.began || at[1] != at[0] || at[2] <= at[1] || at[3] != at[2] || at[3] > l.turn.ended {
		t.Errorf("functions at %d in a turn from %d to %d", at, l.turn.began, l.turn.ended)
	}
	l.Post(note)
	l.BeginTurn()
	later(l)
	if l.EndTurn(); at[4] <= l.turn.began {
		t.Errorf("the only function is at %d in a turn from %d", at[4], l.turn.began)
	}
}

// seen is a watcher that notes when it is told of events.
type seen struct {
	l    *eventLoop
	at   []time.Duration
	what []kernel.Events
}

func (s *seen) onEvents(e kernel.Events) {
	s.at, s.what = append(s.at, s.l.now), append(s.what, e)
	later(s.l)
	if e == kernel.All {
		panic("a test")
	}
}

// TestEventsOfTurn: each event reaches the watcher of its descriptor, at its own time. The first one comes with the turn.
func TestEventsOfTurn(t *testing.T) {
	l, _ := byHand(t)
	s := &seen{l: l}
	l.setWatcher(3, s)
	l.setWatcher(5, s)
	l.BeginTurn()
	later(l)
	for fd := range 8 { // of 3 and 5 alone
		l.OnEvents(fd, kernel.Events(fd))
	}
	if want := []kernel.Events{3, 5}; !slices.Equal(s.what, want) || s.at[0] <= l.turn.began || s.at[1] <= s.at[0] {
		t.Errorf("events %b at %d in a turn since %d", s.what, s.at, l.turn.began)
	}
	if l.EndTurn(); l.stats.Events != 2 || l.stats.TurnEvents.Sum != 8 {
		t.Errorf("%d events, %d of the turn", l.stats.Events, l.stats.TurnEvents.Sum)
	}
	if len(l.watchers) != 6 {
		t.Errorf("a place for each of %d descriptors, of which the last is 5", len(l.watchers))
	}
	l.BeginTurn()
	if l.OnEvents(3, kernel.Input); l.now != l.turn.began || s.at[2] != l.turn.began {
		t.Errorf("the first event is at %d, the turn at %d", s.at[2], l.turn.began)
	}
	if l.OnEvents(3, kernel.Input); s.at[3] <= s.at[2] {
		t.Errorf("the second event is at %d, the first at %d", s.at[3], s.at[2])
	}
	l.setWatcher(3, nil)
	l.OnEvents(3, kernel.Input)
	l.OnEvents(5, kernel.All)
	if l.EndTurn(); len(s.at) != 5 || l.stats.Events != 5 || l.reactor.Panics().Count() != 1 {
		t.Errorf("%d events, %d panics", l.stats.Events, l.reactor.Panics().Count())
	}
}

// TestTimerOfEvent: a timer without a delay fires in the turn of the event that arms it, before the flushes.
func TestTimerOfEvent(t *testing.T) {
	for _, delay := range []time.Duration{0, -time.Second} {
		l, _ := byHand(t)
		var order []string
		l.BeginTurn()
		l.Defer(&loop.Flush{Do: func() { order = append(order, "flush") }})
		l.After(delay, &loop.Timer{Fire: func() { order = append(order, "timer") }})
		l.EndTurn()
		if want := []string{"timer", "flush"}; !slices.Equal(order, want) {
			t.Errorf("after a delay of %s: %q, want %q", delay, order, want)
		}
	}
}

// TestPostWakes: Post wakes a loop that waits, once, and no other.
func TestPostWakes(t *testing.T) {
	l, w := byHand(t)
	l.quantum.began = time.Hour
	ran := 0
	count := func() { ran++ }
	for turn := range 3 {
		l.BeginTurn()
		l.Post(count)
		l.Post(count)
		l.EndTurn()
		if w.count != turn || ran != 4*turn+2 {
			t.Errorf("turn %d: woken %d times, %d functions have run", turn, w.count, ran)
		}
		l.Post(count)
		l.Post(count)
		if w.count != turn+1 {
			t.Errorf("after turn %d: woken %d times", turn, w.count)
		}
	}
	l.BeginTurn()
	l.EndTurn()
	l.BeginTurn()
	if l.Post(count); w.count != 3 {
		t.Errorf("in a turn of an event: woken %d times", w.count)
	}
	l.EndTurn()
	l.posts.retire()
	if l.Post(count); w.count != 3 || len(l.posts.queue)+len(l.posts.take()) > 0 {
		t.Errorf("after the end: woken %d times", w.count)
	}
}

// TestPostMemory: the queue of posted functions keeps its memory, unless it was very long.
func TestPostMemory(t *testing.T) {
	l, _ := byHand(t)
	fill := func(n int) {
		for range n {
			l.Post(func() {})
		}
		if got := len(l.posts.take()); got != n {
			t.Errorf("%d of %d functions", got, n)
		}
	}
	for _, n := range []int{10, 10, maxKeptPosts + 1, 10, 10, 10} {
		fill(n)
	}
	p := &l.posts
	p.taken = make([]func(), 0, maxKeptPosts)
	if fill(1); cap(p.queue) != maxKeptPosts {
		t.Errorf("memory for %d functions is kept, want %d", cap(p.queue), maxKeptPosts)
	}
	p.queue = nil
	fill(10)
	fill(10)
	if kept := cap(p.queue) + cap(p.taken); kept > maxKeptPosts || kept < 10 {
		t.Errorf("memory for %d functions is kept", kept)
	}
	fill(10)
	fill(10)
	if n := testing.AllocsPerRun(10, func() {
		for range 10 {
			l.Post(nil)
		}
		clear(l.posts.take())
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
