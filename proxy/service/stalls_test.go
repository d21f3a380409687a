package service

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/sim"
)

// learnable returns a route whose latencies tell a best delay, once a look chooses it.
func learnable(now time.Duration) HedgedRoute {
	const ms = time.Millisecond
	r := hedge.NewRoute(hedge.Policy{Mode: hedge.On, MinDelay: ms, MaxDelay: 50 * ms, Budget: .05, Max: 1}, 1)
	for i := range 5000 {
		took := 4*ms + time.Duration(i%64)*ms/32
		if i%20 == 0 {
			took = 49 * ms
		}
		r.Latencies.Observe(now, took, 0)
	}
	return HedgedRoute{Route: r}
}

// learned returns how many routes of s have chosen their best delay.
func learned(s *Service) (n int) {
	for _, r := range s.Routes {
		if best := r.Delays.Best(); best.Known() {
			n++
		}
	}
	return n
}

// TestLooksOnTime: a service is looked at lookEvery after a pick, and a reload does not put off the look. A service with one endpoint is not
// looked at, nor is one without requests in flight.
func TestLooksOnTime(t *testing.T) {
	for _, c := range []struct{ endpoints, want int }{{1, 0}, {2, 1}} {
		world := sim.New(1)
		l, m := world.Loop("a"), NewMember(config.DefaultService("s"), Member{}, 1)
		var s *Service
		reload := func() {
			s.Configure(Member{SharedService: s.Shared, cfg: s.Config, bounds: s.Bounds})
			s.Pick(s.Query(0, nil), nil)
		}
		check := func(at string, want int) {
			t.Helper()
			l.Do(func() {
				if n := learned(s); n != want {
					t.Errorf("%d endpoints, %s: %d routes have chosen their delay, want %d", c.endpoints, at, n, want)
				}
				s.Routes = []HedgedRoute{learnable(l.Now())}
			})
		}
		l.Do(func() {
			w := shard.New(&shard.Process{Loops: 1}, 0, l, slog.New(slog.DiscardHandler), 1)
			w.Configure(config.Default())
			m.Prepare(w, "", nil)
			s = m.Follow(w)
			withEndpoints(s, make([]*noConnections, c.endpoints)...)
			s.Routes = []HedgedRoute{learnable(l.Now())}
			reload()
		})
		world.Run(lookEvery - 10*time.Millisecond)
		l.Do(reload)
		check("before the look", 0)
		world.Run(20 * time.Millisecond)
		check("after the look", c.want)
		world.Run(2 * lookEvery)
		check("without requests", 0)
	}
}

// TestLooksInStall: while the endpoints are silent together, looks follow soon, to learn how long.
func TestLooksInStall(t *testing.T) {
	for silence, want := range map[time.Duration]time.Duration{time.Second: lookStalled, 0: lookEvery} {
		s, l := newTestService(t)
		withEndpoints(s, nil, nil)
		for i := range s.Set.Len() {
			s.Set.At(i).Start(l.Now())
		}
		l.now += silence
		s.stalls.due = loop.Due(l.Now())
		if s.stalls.look(); l.timers[&s.stalls.timer] != l.Now()+want {
			t.Errorf("silent for %v: the next look is at %v, want %v from now on", silence, l.timers[&s.stalls.timer], want)
		}
	}
}

// TestPeriodicStallsLogged: the log says that a service has periodic stalls when the first loop knows. It says that they are over when no loop
// knows any more. It says each of them once.
func TestPeriodicStallsLogged(t *testing.T) {
	const every, length = 10 * time.Second, time.Second
	var text strings.Builder
	loops := []*stillLoop{{}, {}}
	of, m := &shard.Process{Loops: len(loops)}, NewMember(config.DefaultService("s"), Member{}, len(loops))
	look := func(s *Service) {
		s.stalls.due = loop.Due(s.Shard.Loop.Now())
		s.stalls.look()
	}
	logged := func(at string, found, over int) {
		t.Helper()
		if a, b := strings.Count(text.String(), "no hedge is sent in them"), strings.Count(text.String(), "periodic stalls are over"); a != found || b != over {
			t.Errorf("%s: the log has %d that are found, %d that are over, want %d and %d", at, a, b, found, over)
		}
	}
	var services []*Service
	for i, l := range loops {
		w := shard.New(of, i, l, slog.New(slog.NewTextHandler(&text, nil)), 1)
		w.Configure(config.Default())
		m.Prepare(w, "", nil)
		s := m.Follow(w)
		services = append(services, s)
		logged("before", min(i, 1), 0)
		look(s)
		for range 8 {
			onset := l.Now()
			l.now += length
			s.Hedging.Stalls.Look(l.Now(), true, onset, 0)
			look(s)
			l.now += every - length
		}
		logged("known", 1, 0)
	}
	for i, l := range loops {
		l.now += 100 * every
		look(services[i])
		logged("gone", 1, i)
	}
}

// TestDelaysInTurn: a look makes a few choices of delays anew, and those of all routes in turn.
func TestDelaysInTurn(t *testing.T) {
	const routes = choosePerLook + 2
	s, l := newTestService(t)
	for range routes {
		s.Routes = append(s.Routes, learnable(l.Now()))
	}
	for _, want := range []int{choosePerLook, routes} {
		s.stalls.chooseDelays(l.Now())
		if n := learned(s); n != want {
			t.Errorf("%d delays are chosen, want %d", n, want)
		}
	}
}
