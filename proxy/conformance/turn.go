package conformance

import (
	"slices"

	"github.com/remora-proxy/remora/proxy/loop"
)

func deferOnce(s *suite) {
	ran := 0
	f := s.flush(func() { ran++ })
	for round := 1; round <= 3; round++ {
		s.do(func(l loop.Loop) {
			l.Defer(f)
			l.Defer(f)
			if ran != round-1 {
				s.t.Error("Defer ran the flush within the call")
			}
			l.Defer(f)
		})
		s.Wait("the flush", func() bool { return ran >= round })
		s.settle()
		s.do(func(loop.Loop) {
			if ran != round {
				s.t.Errorf("the flush ran %d times in %d turns that deferred it", ran, round)
			}
		})
	}
}

// deferAtEndOfTurn: timers due at the same time are in the same turn, so a flush
// that the first defers runs after the last.
func deferAtEndOfTurn(s *suite) {
	const count = 10
	fired, ran := 0, 0
	f := s.flush(func() {
		ran++
		if fired != count {
			s.t.Errorf("the flush ran after %d of the turn's %d timers", fired, count)
		}
	})
	s.do(func(l loop.Loop) {
		for range count {
			l.After(soon, s.timer(func() { fired++; l.Defer(f) }))
		}
	})
	s.Wait("timers and flush", func() bool { return fired == count && ran > 0 })
	s.settle()
	s.do(func(loop.Loop) {
		if ran != 1 {
			s.t.Errorf("the flush ran %d times in one turn", ran)
		}
	})
}

func deferInOrder(s *suite) {
	const count = 20
	var ran, want []int
	s.do(func(l loop.Loop) {
		flushes := make([]*loop.Flush, count)
		for i := range flushes {
			flushes[i] = s.flush(func() { ran = append(ran, i) })
		}
		for i := range flushes {
			i = i * 7 % count
			l.Defer(flushes[i])
			l.Defer(flushes[0]) // queued already: keeps its place
			want = append(want, i)
		}
	})
	s.Wait("all flushes", func() bool { return len(ran) >= count })
	if !slices.Equal(ran, want) {
		s.t.Errorf("flushes ran in the order %v, deferred in the order %v", ran, want)
	}
}

// deferAgainStarvesNothing defers a flush again and again, until a timer has fired and a
// connection has echoed.
func deferAgainStarvesNothing(s *suite) {
	busy, fired, ran := true, false, 0
	var lp loop.Loop
	var f *loop.Flush
	f = s.flush(func() {
		ran++
		if busy {
			lp.Defer(f)
		}
	})
	client, server := s.probe("client"), s.probe("server").echo()
	s.do(func(l loop.Loop) {
		lp = l
		l.Defer(f)
		l.After(soon, s.timer(func() { fired = true }))
	})
	s.pair(client, server)
	s.do(func(loop.Loop) { client.conn.Write([]byte("echo")) })
	s.Wait("an echo and a timer", func() bool { return fired && len(client.got) == 4 && ran > 10 })
	s.do(func(loop.Loop) { busy = false })
}

// deferFromAnywhere: each kind of callback may defer, and the turn ends although nothing else
// happens.
func deferFromAnywhere(s *suite) {
	ran := map[string]bool{}
	var lp loop.Loop
	mark := func(name string) {
		lp.Defer(s.flush(func() { ran[name] = true }))
	}
	s.do(func(l loop.Loop) {
		lp = l
		l.After(0, s.timer(func() { mark("timer") }))
		l.Defer(s.flush(func() { mark("flush") }))
		l.Post(func() { s.call("Post", func() { mark("post") }) })
	})
	client, server := s.probe("client"), s.probe("server")
	client.onOpen = func() { mark("open"); client.conn.Write([]byte("x")) }
	server.onData = func([]byte) { mark("data"); server.close() }
	server.onClose = func() { mark("own close") }
	client.onClose = func() { mark("peer's close") }
	s.pair(client, server)
	s.Wait("seven flushes", func() bool { return len(ran) == 7 })
}

// deferBeforeCloseNotice: deferred flushes run before the OnClose of a close in that turn, and
// may still use the connection (without effect).
func deferBeforeCloseNotice(s *suite) {
	client, server := s.probe("client"), s.probe("server")
	s.pair(client, server)
	ran := false
	client.onClose = func() {
		if !ran {
			s.t.Error("OnClose came before the flush of the turn that closed")
		}
	}
	s.do(func(l loop.Loop) {
		client.close()
		l.Defer(s.flush(func() { ran = true; client.conn.Write([]byte("late")) }))
	})
	s.Wait("both to be closed", func() bool { return client.closed && server.closed })
	s.do(func(loop.Loop) { s.same("server", server.got, nil) })
}

func postFromOutside(s *suite) {
	const posters, each = 8, 100
	var ran [posters][each]int
	total := 0
	var all [posters]func(l loop.Loop)
	for i := range all {
		all[i] = func(l loop.Loop) {
			for k := range each {
				l.Post(func() { s.call("Post", func() { ran[i][k]++; total++ }) })
			}
		}
	}
	s.Outside(all[:]...)
	s.Wait("all posts", func() bool { return total >= posters*each })
	s.settle()
	s.do(func(loop.Loop) {
		for i := range ran {
			for k, n := range ran[i] {
				if n != 1 {
					s.t.Errorf("post %d of poster %d ran %d times", k, i, n)
				}
			}
		}
	})
}

func postNotWithinCall(s *suite) {
	ran := false
	s.do(func(l loop.Loop) {
		l.Post(func() { s.call("Post", func() { ran = true }) })
		if ran {
			s.t.Error("Post ran the function within the call")
		}
	})
	s.Wait("the posted function", func() bool { return ran })
}
