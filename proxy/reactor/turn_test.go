package reactor

import (
	"errors"
	"math"
	"net"
	"strconv"
	"testing"

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
