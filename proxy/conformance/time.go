package conformance

import (
	"slices"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

func nowStandsStill(s *suite) {
	s.do(func(l loop.Loop) {
		start := l.Now()
		for range 10_000 {
			if now := l.Now(); now != start {
				s.t.Errorf("Now moved from %v to %v within a callback", start, now)
				return
			}
		}
	})
}

func nowIsMonotonic(s *suite) {
	var last time.Duration
	fired := 0
	var lp loop.Loop
	var t *loop.Timer
	t = s.timer(func() {
		if now := lp.Now(); now <= last {
			s.t.Errorf("Now went from %v to %v in %v", last, now, time.Millisecond/4)
		}
		last = lp.Now()
		if fired++; fired < 50 {
			lp.After(time.Millisecond/4, t)
		}
	})
	s.do(func(l loop.Loop) {
		lp, last = l, l.Now()
		l.After(time.Millisecond/4, t)
	})
	s.Wait("50 timers", func() bool { return fired == 50 })
}

// timersInOrder arms timers for few times in a scrambled order; those for the
// same time fire as they were armed.
func timersInOrder(s *suite) {
	const count, times = 200, 5
	var want, fired []int
	s.do(func(l loop.Loop) {
		for i := range count {
			d := time.Duration(i*7%times) * time.Millisecond
			l.After(d, s.timer(func() { fired = append(fired, i) }))
		}
	})
	for k := range times {
		for i := range count {
			if i*7%times == k {
				want = append(want, i)
			}
		}
	}
	s.Wait("all timers to fire", func() bool { return len(fired) == count })
	if !slices.Equal(fired, want) {
		s.t.Errorf("timers fired in the order\n%v, want\n%v", fired, want)
	}
}

func timersNotEarly(s *suite) {
	const count = 100
	fired := 0
	s.do(func(l loop.Loop) {
		start := l.Now()
		for i := range count {
			d := time.Duration(i) * 137 * time.Microsecond
			l.After(d, s.timer(func() {
				fired++
				if late := l.Now() - start - d; late < 0 {
					s.t.Errorf("a timer for %v fired %v early", d, -late)
				}
			}))
		}
	})
	s.Wait("all timers to fire", func() bool { return fired == count })
}

func timerZeroNotWithinCall(s *suite) {
	for _, d := range []time.Duration{0, -time.Second} {
		fired := 0
		s.do(func(l loop.Loop) {
			l.After(d, s.timer(func() { fired++ }))
			if fired != 0 {
				s.t.Errorf("After(%v) fired within the call", d)
			}
		})
		s.Wait("the timer to fire", func() bool { return fired == 1 })
	}
}

// timerZeroStarvesNothing arms a timer for now again and again, until other timers have
// fired, flushes have run and a connection has echoed.
func timerZeroStarvesNothing(s *suite) {
	busy, other, fires, flushes := true, false, 0, 0
	var lp loop.Loop
	flush := s.flush(func() { flushes++ })
	var t *loop.Timer
	t = s.timer(func() {
		if fires != flushes {
			s.t.Errorf("fired %d times before the end of turn %d", fires+1, flushes+1)
		}
		fires++
		lp.Defer(flush)
		if busy {
			lp.After(0, t)
		}
	})
	client, server := s.probe("client"), s.probe("server").echo()
	s.do(func(l loop.Loop) {
		lp = l
		l.After(0, t)
		l.After(soon, s.timer(func() { other = true }))
	})
	s.pair(client, server)
	s.do(func(loop.Loop) { client.conn.Write([]byte("echo")) })
	s.Wait("an echo and another timer", func() bool { return other && len(client.got) == 4 && fires > 10 })
	s.do(func(loop.Loop) { busy = false })
}

func timerMoved(s *suite) {
	early, late, fired := 0, 0, false
	s.do(func(l loop.Loop) {
		start := l.Now()
		a := s.timer(func() { early++ })
		l.After(long, a)
		l.After(time.Millisecond, a)
		b := s.timer(func() {
			late++
			if d := l.Now() - start; d < 4*soon {
				s.t.Errorf("a timer moved to %v fired after %v", 4*soon, d)
			}
		})
		l.After(time.Millisecond, b)
		l.After(4*soon, b)
		l.After(5*soon, s.timer(func() { fired = true }))
	})
	s.Wait("the last timer", func() bool { return fired })
	s.do(func(loop.Loop) {
		if early != 1 || late != 1 {
			s.t.Errorf("moved timers fired %d and %d times, want once each", early, late)
		}
	})
}

func timerStoppedByAnother(s *suite) {
	first, last := false, false
	s.do(func(l loop.Loop) {
		victim := s.timer(func() { s.t.Error("a timer fired that another one had stopped") })
		l.After(soon, s.timer(func() { first = true; l.Stop(victim); l.Stop(victim) }))
		l.After(soon, victim)
		l.After(2*soon, s.timer(func() { last = true }))
	})
	s.Wait("the last timer", func() bool { return last })
	s.do(func(loop.Loop) {
		if !first {
			s.t.Error("the timer that stops did not fire")
		}
	})
}

func timerMovedByAnother(s *suite) {
	var at []time.Duration
	done := false
	s.do(func(l loop.Loop) {
		start := l.Now()
		moved := s.timer(func() { at = append(at, l.Now()-start) })
		l.After(soon, s.timer(func() { l.After(soon, moved) }))
		l.After(soon, moved)
		l.After(4*soon, s.timer(func() { done = true }))
	})
	s.Wait("both timers", func() bool { return done && len(at) > 0 }) // a late loop may fire them in the other order
	s.do(func(loop.Loop) {
		if len(at) != 1 || at[0] < 2*soon {
			s.t.Errorf("a timer moved from %v to %v fired at %v", soon, 2*soon, at)
		}
	})
}

func timerRearmsItself(s *suite) {
	const count = 100
	fired := 0
	var lp loop.Loop
	var t *loop.Timer
	t = s.timer(func() {
		if fired++; fired < count {
			lp.After(100*time.Microsecond, t)
		}
	})
	s.do(func(l loop.Loop) { lp = l; l.After(0, t) })
	s.Wait("the last firing", func() bool { return fired >= count })
	s.settle()
	s.do(func(loop.Loop) {
		if fired != count {
			s.t.Errorf("fired %d times, armed %d times", fired, count)
		}
	})
}

func timerArmed(s *suite) {
	fired := false
	s.do(func(l loop.Loop) {
		var t *loop.Timer
		check := func(when string, want bool) {
			if t.Armed() != want {
				s.t.Errorf("%s Armed is %t", when, !want)
			}
		}
		t = s.timer(func() { fired = true; check("while it fires", false) })
		check("before After", false)
		l.Stop(t)
		check("after Stop of a timer never armed", false)
		l.After(long, t)
		check("after After", true)
		l.Stop(t)
		check("after Stop", false)
		l.After(0, t)
		check("after After(0)", true)
	})
	s.Wait("the timer", func() bool { return fired })
}

// timersMany arms ten thousand, stops every third and moves every seventh.
func timersMany(s *suite) {
	const count = 10_000
	var fired [count]int
	total, want := 0, 0
	s.do(func(l loop.Loop) {
		var timers [count]*loop.Timer
		for i := range timers {
			timers[i] = s.timer(func() { fired[i]++; total++ })
			l.After(time.Duration(i*7919%count)*2*time.Microsecond, timers[i])
		}
		for i, t := range timers {
			switch {
			case i%3 == 0:
				l.Stop(t)
				continue
			case i%7 == 0:
				l.After(time.Duration(i)*time.Microsecond, t)
			}
			want++
		}
	})
	s.Wait("all timers", func() bool { return total >= want })
	s.settle()
	s.do(func(loop.Loop) {
		for i, n := range fired {
			if stopped := i%3 == 0; stopped && n != 0 || !stopped && n != 1 {
				s.t.Errorf("timer %d fired %d times, stopped=%t", i, n, stopped)
			}
		}
	})
}
