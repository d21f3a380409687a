package service

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/lb/probe"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/sim"
)

// asker is an attempt that notes when its wait is over.
type asker struct {
	ProbeWait
	on   *sim.Loop
	over []time.Duration
}

func (a *asker) Answered() { a.over = append(a.over, a.on.Now()) }

// TestProbeWaits: each attempt waits for its own time at most, or until enough have answered. One that is withdrawn hears nothing.
func TestProbeWaits(t *testing.T) {
	const wait, between = time.Millisecond, 400 * time.Microsecond
	for name, c := range map[string]struct {
		early    int // answers after the first attempt has begun to wait
		answers  int // at once after the last attempt has begun to wait
		withdrew int // index of an attempt that is withdrawn then; -1 means none
		want     []time.Duration
		inVain   uint64
	}{
		"no answer":            {0, 0, -1, []time.Duration{wait, between + wait, 2*between + wait}, 3},
		"one withdrawn":        {0, 0, 1, []time.Duration{wait, 0, 2*between + wait}, 2},
		"first withdrawn":      {0, 0, 0, []time.Duration{0, between + wait, 2*between + wait}, 2},
		"one answer less":      {0, probe.Default.Enough - 1, -1, []time.Duration{wait, between + wait, 2*between + wait}, 3},
		"enough answers":       {0, probe.Default.Enough, -1, []time.Duration{2 * between, 2 * between, 2 * between}, 0},
		"enough for the first": {1, probe.Default.Enough - 1, -1, []time.Duration{2 * between, between + wait, 2*between + wait}, 2},
	} {
		world := sim.New(1)
		l := world.Loop("a")
		var s *Service
		var began time.Duration
		var attempts []*asker
		l.Do(func() {
			of := &shard.Process{Loops: 1}
			settings := config.DefaultService("s")
			settings.Probe = config.ProbeOn
			m := NewMember(settings, Member{}, 1)
			w := shard.New(of, 0, l, slog.New(slog.DiscardHandler), 1)
			w.Configure(config.Default())
			m.Prepare(w, "", nil)
			s = m.Follow(w)
			withEndpoints(s, &noConnections{}, &noConnections{}, &noConnections{}, &noConnections{})
			began = l.Now()
		})
		for i := range 3 {
			if i > 0 {
				world.Run(between)
			}
			l.Do(func() {
				a := &asker{on: l}
				a.Init(a)
				q := s.Query(0, nil)
				if e, waits := s.Probes.Pick(&a.ProbeWait, &q); e != nil || !waits {
					t.Fatalf("%s: attempt %d waits: %t", name, i, waits)
				}
				if attempts = append(attempts, a); i == 0 {
					for n := range c.early {
						s.Probes.Answered(s.Set.At(n), lb.Load{})
					}
				}
			})
		}
		l.Do(func() {
			if c.withdrew >= 0 {
				attempts[c.withdrew].Withdraw()
			}
			for i := range c.answers {
				s.Probes.Answered(s.Set.At(i), lb.Load{})
			}
			q := s.Query(0, nil)
			if e := s.Probes.Best(&q); (e != nil) != (c.early+c.answers > 0) {
				t.Errorf("%s: the best endpoint is %v", name, e)
			}
		})
		world.Run(time.Second)
		var got []time.Duration
		waits := uint64(0)
		for i, a := range attempts {
			switch len(a.over) {
			case 0:
				got = append(got, 0)
			case 1:
				got = append(got, (a.over[0] - began).Truncate(10*time.Microsecond))
				waits++
			default:
				t.Errorf("%s: attempt %d has heard %d times", name, i, len(a.over))
			}
		}
		if n := s.Stats.Probes; !slices.Equal(got, c.want) || n.Waits != waits || n.InVain != c.inVain || n.Answers != uint64(c.early+c.answers) {
			t.Errorf("%s: waited %v, want %v; counted %+v", name, got, c.want, n)
		}
	}
}

// calm is an attempt for which the end of its wait changes nothing.
type calm struct{}

func (calm) Answered() {}

// TestProbesOfFew: an attempt waits if two endpoints may answer: there is a choice.
func TestProbesOfFew(t *testing.T) {
	s, l := newTestService(t)
	settings := *s.Config
	settings.Probe = config.ProbeOn
	s.Configure(Member{SharedService: s.Shared, cfg: &settings, bounds: s.Bounds})
	a, b := &noConnections{}, &noConnections{}
	withEndpoints(s, a, b)
	var w ProbeWait
	w.Init(calm{})
	q := s.Query(0, nil)
	if e, waits := s.Probes.Pick(&w, &q); e != nil || !waits || a.probes != 1 || b.probes != 1 {
		t.Errorf("picked %v, waits %t, %d and %d probes", e, waits, a.probes, b.probes)
	}
	if _, armed := l.timers[&s.Probes.timer]; !armed {
		t.Error("the wait has no end")
	}
	for i := range 2 {
		s.Probes.Answered(s.Set.At(i), lb.Load{Pending: 3, SinceResponse: -1})
		if others, reported := s.Set.At(i).Reported(l.Now()); !reported || others != 3 {
			t.Errorf("endpoint %d has reported: %t, %v requests of others", i, reported, others)
		}
	}
	if _, armed := l.timers[&s.Probes.timer]; armed {
		t.Error("the timer is armed, and nobody waits")
	}
}

// TestProbesOn: the setting decides whether endpoints are asked, and a policy that compares no load asks none.
func TestProbesOn(t *testing.T) {
	for _, c := range []struct {
		setting, policy string
		want            bool
	}{
		{config.ProbeOn, "least_pending", true}, {config.ProbeOff, "least_pending", false}, {config.ProbeOn, "random", false}, {config.ProbeAuto, "least_pending", false},
	} {
		s, l := newTestService(t)
		withEndpoints(s, nil, nil)
		s.Config.Probe, s.Set.Policy = c.setting, lb.PolicyOf(c.policy)
		s.Probes.On = !c.want
		if s.Probes.refresh(l.Now()); s.Probes.On != c.want {
			t.Errorf("%s with %s: %t", c.setting, c.policy, s.Probes.On)
		}
	}
}

// probed returns a service with endpoints "a", "b" and so on at these connections, which asks them.
func probed(t *testing.T, all ...*noConnections) (*Service, *stillLoop) {
	t.Helper()
	s, l := newTestService(t)
	settings := *s.Config
	settings.Probe = config.ProbeOn
	s.Configure(Member{SharedService: s.Shared, cfg: &settings, bounds: s.Bounds})
	withEndpoints(s, all...)
	return s, l
}

// pick picks for an attempt, and reports whether the attempt waits.
func pick(s *Service, w *ProbeWait) (e *lb.Endpoint, waits bool) {
	w.Init(calm{})
	q := s.Query(0, nil)
	return s.Probes.Pick(w, &q)
}

// TestPickByAnswers: an attempt that enough answers decide does not wait. It goes to the endpoint with the least load, and asks again.
func TestPickByAnswers(t *testing.T) {
	all := []*noConnections{{}, {}, {}}
	s, _ := probed(t, all...)
	for i, pending := range []int{5, 1, 7} {
		s.Probes.Answered(s.Set.At(i), lb.Load{Pending: pending, SinceResponse: -1})
	}
	if e, waits := pick(s, new(ProbeWait)); e != s.Set.At(1) || waits {
		t.Errorf("picked %v, waits %t", e, waits)
	}
	for i, c := range all {
		if c.probes != 1 {
			t.Errorf("endpoint %d is asked %d times", i, c.probes)
		}
	}
	if s.Probes.asked != [probe.Asked]*lb.Endpoint{} {
		t.Error("endpoints are kept that were asked")
	}
}

// TestNoPickByAnswers: an attempt does not wait if one endpoint at most may answer, as there is no choice. Without probes nobody is asked,
// and answers decide nothing.
func TestNoPickByAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		off     bool // the setting
		silent  bool // all but the first
		answers int
		probes  int // to the first
	}{"one may answer": {false, true, 0, 1}, "off": {true, false, 3, 0}} {
		all := []*noConnections{{}, {silent: c.silent}, {silent: c.silent}}
		s, _ := probed(t, all...)
		if c.off {
			settings := *s.Config
			settings.Probe = config.ProbeOff
			s.Configure(Member{SharedService: s.Shared, cfg: &settings, bounds: s.Bounds})
		}
		for i := range c.answers {
			s.Probes.Answered(s.Set.At(i), lb.Load{SinceResponse: -1})
		}
		if e, waits := pick(s, new(ProbeWait)); e != nil || waits || all[0].probes != c.probes {
			t.Errorf("%s: picked %v, waits %t, %d probes", name, e, waits, all[0].probes)
		}
	}
}

// TestProbePatience: after a wait in vain an attempt does not wait, and after the next in a row two do not. A wait that ends with answers
// begins anew.
func TestProbePatience(t *testing.T) {
	s, l := probed(t, &noConnections{}, &noConnections{})
	var got []bool
	attempt := func(answered bool) {
		_, waits := pick(s, new(ProbeWait))
		got = append(got, waits)
		for i := range s.Set.Len() {
			if answered {
				s.Probes.Answered(s.Set.At(i), lb.Load{})
			}
		}
		l.advance(probe.WaitOf(0))
	}
	for i := range 9 {
		attempt(i == 5)
	}
	if want := []bool{true, false, true, false, false, true, true, false, true}; !slices.Equal(got, want) {
		t.Errorf("waits %t, want %t", got, want)
	}
}

// TestProbeWaitsInOrder: an attempt waits for as many answers as may come, or as the attempt before it, if that waits.
func TestProbeWaitsInOrder(t *testing.T) {
	for name, inVain := range map[string]bool{"before": false, "in vain": true} {
		all := []*noConnections{{}, {}, {}}
		s, l := probed(t, all...)
		var first, second ProbeWait
		if _, waits := pick(s, &first); !waits {
			t.Error("the first does not wait")
		}
		if inVain {
			l.advance(time.Second)
			pick(s, new(ProbeWait)) // it does not wait
		}
		all[2].silent = true
		if _, waits := pick(s, &second); !waits {
			t.Error("the second does not wait")
		}
		first.Withdraw()
		for i, want := range []bool{true, !inVain, false} {
			s.Probes.Answered(s.Set.At(i), lb.Load{})
			if waits := second.node.Queue() != nil; waits != want {
				t.Errorf("%s: after %d answers it waits: %t", name, i+1, waits)
			}
		}
	}
}

// TestForgottenAnswers: the answer of an endpoint that has left the service counts no more.
func TestForgottenAnswers(t *testing.T) {
	s, l := probed(t)
	s.connectors = Protocols{"": {Connector: func(*Service, *Endpoint) Connections { return &noConnections{} }}}
	s.Shared.Update(snapshotOf("a", "b", "c", "d"), "")
	l.runPosts()
	for _, addr := range []string{"a", "b", "c"} {
		s.Probes.Answered(s.Set.Lookup(addr), lb.Load{})
	}
	s.Shared.Update(snapshotOf("b", "c", "d"), "")
	l.runPosts()
	if e, waits := pick(s, new(ProbeWait)); e != nil || !waits {
		t.Errorf("%v is picked by two answers", e)
	}
	s.Shared.Update(snapshotOf("d", "e", "f"), "")
	l.runPosts()
	q := s.Query(0, nil)
	if e := s.Probes.Best(&q); e != nil {
		t.Errorf("%s is the best", e.Addr)
	}
}
